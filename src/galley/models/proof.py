"""Is a layout exact for this model, here, now? Two short documents say so at load time; no list of families does.

A layout passes when what the model says about a document equals what it says about the document alone, and when
nothing of it moves as every token of its neighbour is changed. Each is compared with the same measure of a naive row
that does leak, so that the rounding of low-precision weights is not taken for a leak, nor a leak for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from galley.data.batch import TokenBatch
from galley.models.base import LanguageModel
from galley.models.layouts import Face, Layout
from galley.models.network import Inputs, Network

LENGTHS = (9, 11)
"""Tokens of the two documents: more than a short convolution reaches, and unequal."""


@dataclass(frozen=True)
class Evidence:
    """What a model says about the second document (b), in ways that need no layout.

    Args:
        first_a: rows of the first document alone.
        alone_b: rows of the second document alone.
        naive_b: its rows at the end of a row in which everything sees what is before it.
        edited_b: the same after the first document was changed.
    """

    first_a: Tensor
    alone_b: Tensor
    naive_b: Tensor
    edited_b: Tensor


class Proof:
    """Checks layouts of one network.

    Args:
        network: the model; it is put into evaluation mode while it is checked.
        face: the part of it that the layout will run.
    """

    def __init__(self, network: Network, face: Face) -> None:
        self.face = face
        self.ids_a, self.ids_b, self.ids_other = probe_tokens(network)
        self.evidence = Evidence(
            self._row(self.ids_a),
            self._row(self.ids_b),
            self._row(self.ids_a, self.ids_b)[len(self.ids_a) :],
            self._row(self.ids_other, self.ids_b)[len(self.ids_a) :],
        )

    def objection(self, layout: Layout) -> str:
        """Why the layout may not be used, or an empty string."""
        ids_a, ids_b, truth = self.ids_a, self.ids_b, self.evidence
        try:
            rows = layout.rows(self.face, pack(ids_a, ids_b))
            edited_b = layout.rows(self.face, pack(self.ids_other, ids_b))[len(ids_a) :]
        except (
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            KeyError,
        ) as error:
            return f"it fails ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        rows_a, rows_b = rows[: len(ids_a)], rows[len(ids_a) :]
        leak, naive_leak = _errors(edited_b, rows_b).max(), _errors(truth.edited_b, truth.naive_b).max()
        rounding = _rounding(rows.dtype)
        if not leak <= max(1e-2 * rounding, min(rounding, 0.1 * float(naive_leak))):
            return f"a document changes by {float(leak):.1g} with its neighbour"
        distance = max(float(_errors(rows_a, truth.first_a).median()), float(_errors(rows_b, truth.alone_b).median()))
        naive = float(_errors(truth.naive_b, truth.alone_b).median())
        if not distance <= (rounding if leak == 0 else min(rounding, 0.25 * naive)):
            return f"a document differs by {distance:.1g} from itself alone"
        return ""

    def _row(self, *documents: Tensor) -> Tensor:
        return self.face(Inputs(torch.cat(documents)[None]), None)[0]


def _errors(a_LX: Tensor, b_LX: Tensor) -> Tensor:
    """Relative difference at each token, [L]; NaN counts as infinite."""
    norm = torch.linalg.vector_norm
    difference_L = norm(a_LX.float() - b_LX.float(), dim=-1) / norm(b_LX.float(), dim=-1).clamp(min=1e-20)
    return torch.nan_to_num(difference_L, nan=float("inf"))


def _rounding(dtype: torch.dtype) -> float:
    """Relative error that rounding may add up to over many layers."""
    return 10 * torch.finfo(dtype).eps if dtype != torch.float32 else 2e-4


def probe_tokens(network: Network) -> tuple[Tensor, Tensor, Tensor]:
    """Two documents, and another one of the first one's length that differs from it everywhere."""
    special: set[int] = set()
    vocab = 32
    if network.config is not None:
        vocab = min(int(network.config.vocab_size), 4096)
        said = network.config.to_dict()
        for value in (said.get(f"{name}_token_id") for name in ("pad", "bos", "eos", "image", "mask")):
            special.update(value if isinstance(value, list) else [value] if isinstance(value, int) else [])
    usable = [token for token in range(1, vocab) if token not in special]
    count = 2 * LENGTHS[0] + LENGTHS[1]
    ids = torch.tensor([usable[7 * i % len(usable)] for i in range(count)], device=network.device)
    first, second, other = torch.split(ids, [LENGTHS[0], LENGTHS[1], LENGTHS[0]])
    return first, second, torch.where(other == first, torch.roll(other, 1), other)


def pack(*documents: Tensor) -> TokenBatch:
    """Documents as one batch in which every position is asked for."""
    bounds = [0]
    for ids in documents:
        bounds.append(bounds[-1] + len(ids))
    ids_T = torch.cat(documents)
    positions = torch.cat([torch.arange(len(ids), device=ids.device) for ids in documents])
    index_N = torch.arange(len(ids_T), device=ids_T.device)
    return TokenBatch(ids_T, positions, tuple(bounds), index_N, ids_T)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients; each submodule's mode is put back."""
    modes: Sequence[tuple[nn.Module, bool]] = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for submodule, mode in modes:
            submodule.training = mode


def disagreement(model: LanguageModel, reference: LanguageModel) -> tuple[float, float]:
    """How far two ways of running one module are apart on a few tokens, and how far rounding may bring them.

    The log-probabilities and the gradient as a whole are compared, and each tensor's gradient at a quarter of its
    difference: single small tensors are rounded more (in bf16 up to a fifth, measured on SmolLM2 against float32, on
    either path), while a term that is missing moves its tensor by about its whole size.

    Returns:
        The largest of these relative differences; the limit.
    """
    network = Network(reference.module)
    first, second, _ = probe_tokens(network)
    everything = pack(torch.cat([first, second[:2]]), torch.cat([first[:2], second]))
    index_N = torch.tensor([0, 3, 9, 12, 17, 22], device=network.device)
    batch = replace(everything, target_index_N=index_N, target_ids_N=everything.ids_T[index_N + 1])
    with _without_zeros(reference.module):
        results = [_logprobs_and_gradients(one, batch) for one in (model, reference)]
    (logprobs, *grads), (true_logprobs, *true_grads) = results
    difference = max(_distance(logprobs, true_logprobs), _distance(_flat(grads), _flat(true_grads)))
    for mine, truth in zip(grads, true_grads, strict=True):
        difference = max(difference, 0.25 * _distance(mine, truth))
    dtype = next(p.dtype for p in reference.module.parameters() if p.is_floating_point())
    return difference, 2 * _rounding(dtype)


@contextmanager
def _without_zeros(module: nn.Module) -> Iterator[None]:
    """Trainable tensors that start at zero, such as LoRA's B, get small values: zeros would hide the gradient of A."""
    zeros = [p for p in module.parameters() if p.requires_grad and not p.detach().any()]
    random = torch.Generator().manual_seed(0)
    for parameter in zeros:
        parameter.data.copy_(torch.randn(parameter.shape, generator=random) * 0.02)
    try:
        yield
    finally:
        for parameter in zeros:
            parameter.data.zero_()


def _distance(mine: Tensor, truth: Tensor) -> float:
    """Relative difference of two tensors; NaN counts as infinite."""
    distance = (mine.float() - truth.float()).norm() / truth.float().norm().clamp(min=1e-12)
    return float(torch.nan_to_num(distance, nan=float("inf")))


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.float().flatten() for tensor in tensors]) if tensors else torch.zeros(1)


def _logprobs_and_gradients(model: LanguageModel, batch: TokenBatch) -> list[Tensor]:
    trainable = [p for p in model.module.parameters() if p.requires_grad]
    with evaluating(model.module), torch.enable_grad():
        logprobs = model.token_logprobs(batch)
        grads = torch.autograd.grad(logprobs.sum(), trainable, allow_unused=True) if trainable else ()
    return [logprobs.detach(), *(torch.zeros(1) if g is None else g for g in grads)]
