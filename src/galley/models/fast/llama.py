"""The training step of Llama-shaped decoders written by hand: forward, and backward for LoRA factors.

One autograd function holds the whole model. It is faster than the general path because

- base and adapter are one matrix product, each way (`fast.projection`);
- nothing is computed that nobody needs: weight gradients of frozen layers, tokens after the last target, everything
  after the last attention except the rows of targets, and a prefix that all documents share more than once;
- no product waits for all cores: documents are dealt out to lanes, one per core, each with its own small working set;
- memory is kept from step to step (`fast.memory`).

A loaded model takes this path only if it is found equal to the general one (`proof.disagreement`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from galley.data.batch import TokenBatch
from galley.models.base import LanguageModel
from galley.models.fast import layer as layer_step
from galley.models.fast.attention import arrange
from galley.models.fast.kernels import head_logprobs
from galley.models.fast.lanes import LaneBatch, lanes_of
from galley.models.fast.layer import Rows, Saved
from galley.models.fast.memory import Scratch, Slab
from galley.models.fast.shape import Network, Unsupported, read_network
from galley.models.heap import keep_freed_memory, return_gaps

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Memory:
    """Buffers of one lane, in use from its forward pass to the end of its backward pass."""

    slab: Slab
    spare: Slab
    """Layers take turns where nothing is kept."""
    scratch: Scratch

    @classmethod
    def new(cls, dtype: torch.dtype, device: torch.device) -> Memory:
        """Empty buffers; they grow when used."""
        return cls(Slab(dtype, device), Slab(dtype, device), Scratch(dtype, device))


@dataclass(frozen=True)
class Pass:
    """One lane's forward pass, with what its backward pass needs."""

    memory: Memory
    rows: Rows
    only_N: Tensor
    """Rows of the targets, then fillers."""
    targets_N: Tensor
    """Their places in the batch; that of a filler is one beyond the last."""
    layers: tuple[Saved, ...]
    top_ND: Tensor
    """Input of the last norm."""
    inverse_N1: Tensor
    hidden_ND: Tensor
    """Input of the head."""


class FastLlama:
    """A `LanguageModel` with the hand-written step; see `build`."""

    def __init__(self, model: LanguageModel, network: Network, shared_prefix: bool) -> None:
        self.spec, self.module, self.tokenizer = model.spec, model.module, model.tokenizer
        self._general, self._network = model, network
        self._shared_prefix = shared_prefix
        self._free: list[Memory] = []
        self._pool: ThreadPoolExecutor | None = None
        self._sizes: set[tuple[int, ...]] = set()

    @property
    def factors(self) -> tuple[nn.Parameter, ...]:
        """What is learned."""
        return self._network.factors

    @classmethod
    def build(cls, model: LanguageModel, *, shared_prefix: bool = False) -> FastLlama | str:
        """The fast path for a loaded model, or the reason why it cannot take it.

        Args:
            model: on the general path; its module is shared, and its weights become views of fused ones.
            shared_prefix: compute what all documents of a batch start with only once.
        """
        try:
            return cls(model, read_network(model.module), shared_prefix)
        except Unsupported as reason:
            return str(reason)

    def token_logprobs(self, batch: TokenBatch) -> Tensor:
        """Log p(target | its document so far) for every target, [N] float32, differentiable."""
        self._link()
        factors = self._network.factors
        if torch.is_grad_enabled() and factors:
            result: Tensor = _Step.apply(self, batch, *factors)  # type: ignore[no-untyped-call]
            return result
        with torch.no_grad():
            return self.run(batch, keep=False)[0]

    def unlink(self) -> None:
        """Give the module's weights memory of their own again, laid out as they were loaded."""
        for projection in self._network.projections:
            projection.unlink()

    def release(self) -> None:
        """Give everything back, also what the general path did to the module."""
        self.unlink()
        self._general.release()

    def run(self, batch: TokenBatch, *, keep: bool) -> tuple[Tensor, list[Pass], list[Tensor]]:
        """The forward pass.

        Args:
            batch: documents end to end.
            keep: also what `run_backward` needs.

        Returns:
            Log-probabilities [N]; a pass for each lane; for each lane d logprob / d hidden of its targets, [n, D].
        """
        network, threads = self._network, torch.get_num_threads()
        device = network.embedding_VD.device
        lanes = lanes_of(batch, threads if device.type == "cpu" else 1, self._shared_prefix)
        rotations = self._rotations(batch)
        passes = self._map(lambda lane: self._lane_forward(lane, batch, rotations, keep), lanes)
        logprobs = torch.zeros(batch.num_targets + 1, device=device)
        if not passes:
            return logprobs[:-1], [], []
        order = torch.cat([one.targets_N for one in passes])
        hidden = torch.cat([one.hidden_ND for one in passes])
        targets = _and_zero(batch.target_ids_N)[order]
        logprobs[order], grads = head_logprobs(hidden, targets, network.head_VD.detach(), keep)
        logprobs = logprobs[:-1]
        if not keep:
            self._free += [one.memory for one in passes]
            return logprobs, [], []
        assert grads is not None
        return logprobs, passes, list(torch.split(grads, [one.only_N.numel() for one in passes]))

    def run_backward(self, passes: list[Pass], hidden_grads: list[Tensor]) -> dict[nn.Parameter, Tensor]:
        """Gradients of the adapters' factors.

        Args:
            passes: from `run`, used up.
            hidden_grads: gradients of the head's inputs, for each lane.
        """
        network = self._network
        sizes = [projection.numel for projection in network.projections]
        work = list(zip(passes, hidden_grads, strict=True))
        lanes = self._map(lambda lane: self._lane_backward(lane[0], lane[1], sum(sizes)), work)
        lanes = lanes or [torch.zeros(sum(sizes), device=network.embedding_VD.device)]
        parts = list(zip(*(torch.split(grads, sizes) for grads in lanes), strict=True))

        def add(projections: slice) -> list[tuple[nn.Parameter, Tensor]]:
            found = []
            for projection, of_lanes in zip(network.projections[projections], parts[projections], strict=True):
                total = of_lanes[0].to(torch.float32, copy=True)
                for part in of_lanes[1:]:
                    total += part
                found += projection.parameter_grads(total)
            return found

        shares = [slice(start, None, len(lanes)) for start in range(len(lanes))]
        result = dict(pair for found in self._map(add, shares) for pair in found)
        self._free += [one.memory for one in passes]
        self._settle(passes)
        return result

    def _settle(self, passes: Sequence[Pass]) -> None:
        """The products of a new size have left things that last among what was freed."""
        sizes = {(one.rows.ragged.num_tokens, one.only_N.numel(), len(one.rows.ragged.groups)) for one in passes}
        if not sizes <= self._sizes and self._network.embedding_VD.device.type == "cpu":
            self._sizes |= sizes
            return_gaps()

    def _link(self) -> None:
        """Bring the fused matrices up to date with the module."""
        if not all(projection.linked() for projection in self._network.projections):
            self._relink()
        changing = [place for projection in self._network.projections for place in projection.factors()]
        if changing:
            places, factors, scales = zip(*changing, strict=True)
            torch._foreach_copy_(places, factors)
            torch._foreach_mul_(places, scales)

    def _relink(self) -> None:
        """Fuse the weights, at first and after the module was moved."""
        self._network = network = read_network(self.module)
        self._free = []
        for projection in network.projections:
            projection.link()
        if network.embedding_VD.device.type == "cpu":
            keep_freed_memory()
            for parameter in self.module.parameters():
                if parameter is network.embedding_VD or (parameter.dim() == 1 and not parameter.requires_grad):
                    # The last ones that may still be views of the mapped weight file, which then is let go.
                    parameter.data = parameter.detach().clone()

    def _rotations(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every token of the batch, [T, 1, head_dim / 2], in the type of the weights."""
        like = self._network.embedding_VD
        cos, sin = self._network.rotary(like, batch.positions_T[None])
        half = cos.shape[-1] // 2
        return cos[0, :, None, :half].contiguous(), sin[0, :, None, :half].contiguous()

    def _map(self, work: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """Do the work for each item at the same time, each with its share of the cores."""
        if len(items) <= 1:
            return [work(item) for item in items]
        threads = torch.get_num_threads()

        def alone(item: A) -> B:
            if torch.get_num_threads() != threads // len(items):
                torch.set_num_threads(threads // len(items))
            with torch.no_grad():
                return work(item)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lane")
        try:
            return list(self._pool.map(alone, items))
        finally:
            torch.set_num_threads(threads)

    def _lane_forward(self, lane: LaneBatch, batch: TokenBatch, rotations: tuple[Tensor, Tensor], keep: bool) -> Pass:
        network = self._network
        embedding = network.embedding_VD.detach()
        device = embedding.device
        memory = self._free.pop() if self._free else Memory.new(embedding.dtype, device)
        memory.slab.reset()
        memory.spare.reset()
        source, only_N = lane.source_T.to(device), lane.rows_N.to(device)
        ragged = arrange(lane.bounds, lane.prefix, network.layers[0].heads, device)
        cos, sin = (part.index_select(0, source) for part in rotations)
        rows = [Rows(ragged, cos, sin, slab, memory.scratch) for slab in (memory.slab, memory.spare)]
        x = memory.slab.take(source.numel(), embedding.shape[1])
        torch.index_select(embedding, 0, batch.ids_T.index_select(0, source), out=x)
        if network.embedding_scale != 1.0:
            x.mul_(network.embedding_scale)
        saved = []
        for number, layer in enumerate(network.layers):
            used = rows[0]
            if not keep:
                used = rows[(number + 1) % 2]
                used.slab.reset()
            last = layer is network.layers[-1]
            x, needed = layer_step.forward(layer, x, used, only_N if last else None)
            if keep:
                saved.append(needed)
        hidden = torch.empty_like(x)
        inverse = network.norm.forward(x, hidden, memory.scratch)
        targets_N = lane.targets_N.to(device)
        return Pass(memory, rows[0], only_N, targets_N, tuple(saved), x, inverse, hidden)

    def _lane_backward(self, one: Pass, hidden_grad_ND: Tensor, size: int) -> Tensor:
        network, scratch = self._network, one.memory.scratch
        norm = network.norm
        grad = scratch.take_float("d_top", *hidden_grad_ND.shape).zero_()
        norm.backward(hidden_grad_ND, one.top_ND, one.inverse_N1, grad, scratch)
        grads = one.memory.slab.take(size)
        end = size
        for number in reversed(range(len(network.layers))):
            layer = network.layers[number]
            start = end - sum(projection.numel for projection in layer.projections)
            only = one.only_N if number == len(network.layers) - 1 else None
            grad = layer_step.backward(
                layer, one.layers[number], grad, one.rows, only, grads[start:end], need_input=number > 0
            )
            end = start
        return grads


def _and_zero(values_N: Tensor) -> Tensor:
    """The values, and what fillers take: 0."""
    return torch.cat([values_N, values_N.new_zeros(1)])


class _Step(torch.autograd.Function):
    """The whole model; its inputs are the adapters' factors."""

    @staticmethod
    def forward(ctx: Any, fast: FastLlama, batch: TokenBatch, *factors: Tensor) -> Tensor:
        logprobs, ctx.passes, ctx.hidden_grads = fast.run(batch, keep=True)
        ctx.fast = fast
        return logprobs

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        passes, ctx.passes = ctx.passes, None
        assert passes is not None, "the graph of a fast step can be walked once"
        grad_N = _and_zero(grad_N)
        hidden_grads = [
            unit_ND * grad_N.index_select(0, one.targets_N)[:, None]
            for one, unit_ND in zip(passes, ctx.hidden_grads, strict=True)
        ]
        grads = ctx.fast.run_backward(passes, hidden_grads)
        return None, None, *(grads[factor].to(factor.dtype) for factor in ctx.fast.factors)
