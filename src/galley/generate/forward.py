"""Ways to step a causal model token by token, from the fastest that is exact for it to the one that always is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from galley.generate.cache import SlotCache

# transformers renamed the argument to the first; models that are not updated have one of the others.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params")


class Causal:
    """A causal model as a function from token ids to the scores of the next token.

    Args:
        module: a transformers causal language model, PEFT-wrapped or not, or a module that maps ids [R, T] to logits.
        device: where it lives.
        context: tokens that it reads at most; None where nothing bounds them.
    """

    def __init__(self, module: nn.Module, device: torch.device, *, context: int | None) -> None:
        self.device = device
        self.context = context
        self._module = module
        accepted = inspect.signature(_unwrapped(module).forward).parameters
        self._cache_name = next((name for name in _CACHE_NAMES if name in accepted), None)
        self._accepts_positions = "position_ids" in accepted
        self._accepts_mask = "attention_mask" in accepted
        self._accepts_keep = "logits_to_keep" in accepted

    @property
    def has_cache(self) -> bool:
        """Whether the model can go on from what it has read."""
        return self._cache_name is not None

    def __call__(
        self,
        ids_RT: Tensor,
        *,
        mask_RS: Tensor | None = None,
        positions_RT: Tensor | None = None,
        use_cache: bool = False,
        cache: Any = None,
    ) -> tuple[Tensor, Any]:
        """Scores of the token after the last one, [R, V] float32, and the cache that goes on from there.

        Args:
            ids_RT: new tokens.
            mask_RS: 1 for every slot so far that is not padding.
            positions_RT: position of each new token in its row.
            use_cache: keep keys, values and states, in the model's own cache if none is given.
            cache: what was kept of the tokens before.
        """
        arguments: dict[str, Any] = {}
        if self._accepts_keep:
            # An index, not a slice: the head of a frozen model would be copied for every row of a strided slice.
            arguments["logits_to_keep"] = torch.tensor([ids_RT.shape[1] - 1], device=ids_RT.device)
        if self._accepts_mask and mask_RS is not None:
            arguments["attention_mask"] = mask_RS
        if self._accepts_positions and positions_RT is not None:
            arguments["position_ids"] = positions_RT
        if self._cache_name is not None:
            arguments |= {"use_cache": use_cache, self._cache_name: cache}
        output = self._module(ids_RT, **arguments)
        if isinstance(output, Tensor):
            return output[:, -1].float(), None
        kept = getattr(output, self._cache_name) if self._cache_name is not None and use_cache else None
        return output.logits[:, -1].float(), kept


class Rows(Protocol):
    """Rows whose answers are being generated."""

    def step(self, ids_R: Tensor) -> Tensor:
        """Append one token to every row; scores of the next one, [R, V] float32."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, in this order."""

    def join(self, other: Self) -> None:
        """Go on with the rows of the other as well, after these."""


class Way(Protocol):
    """One way to start rows."""

    batches: bool
    """Whether rows can be generated together."""
    label: str

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Rows]:
        """Read the prompts; scores of the first new token of each, [R, V] float32, and the rows."""

    def bytes_per_slot(self) -> int:
        """Memory of one token of one row in the cache; 0 where rows are not generated together."""


_DROP_SHARE = 3  # of the slots: moving a cache to the left pays when a third of it is unused


class SlotRows:
    """Rows that share one cache and end at the same slot; slots that a row does not use are masked.

    Args:
        model: computes the scores.
    """

    def __init__(self, model: Causal) -> None:
        self._model = model
        self._cache = SlotCache()
        self._mask_RS = torch.empty(1, 0, dtype=torch.bool, device=model.device)
        self._lengths_R = torch.zeros(1, dtype=torch.long, device=model.device)

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one token of one row in the cache."""
        return self._cache.bytes_per_slot

    def read(self, prompts: Sequence[Sequence[int]], *, shared: int) -> Tensor:
        """The prompts' tokens; the first `shared` of them, which all prompts have in common, are computed once."""
        if shared:
            self._append([prompts[0][:shared]])
            self._cache.repeat(len(prompts))
        self._mask_RS = self._mask_RS.expand(len(prompts), -1)
        self._lengths_R = self._lengths_R.expand(len(prompts)).clone()
        return self._append([prompt[shared:] for prompt in prompts])

    def step(self, ids_R: Tensor) -> Tensor:
        """Append one token to every row."""
        return self._forward(ids_R[:, None], torch.ones_like(ids_R[:, None], dtype=torch.bool))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows, without the slots on the left that only others used, once these are many."""
        index = torch.tensor(rows, device=self._model.device)
        self._lengths_R = self._lengths_R[index]
        self._mask_RS = self._mask_RS[index]
        self._cache.keep(rows)
        unused = int(self._mask_RS.any(0).int().argmax())
        if unused * _DROP_SHARE > self._cache.length:
            self._mask_RS = self._mask_RS[:, unused:]
            self._cache.shift(-unused)

    def join(self, other: SlotRows) -> None:
        """Take in other rows; the fewer slots are filled up on the left."""
        if (missing := other._cache.length - self._cache.length) > 0:
            self._cache.shift(missing)
        self._cache.join(other._cache)
        self._lengths_R = torch.cat([self._lengths_R, other._lengths_R])
        masks = (pad(mask, (self._cache.length - mask.shape[1], 0)) for mask in (self._mask_RS, other._mask_RS))
        self._mask_RS = torch.cat(list(masks))

    def _append(self, ids: Sequence[Sequence[int]]) -> Tensor:
        width = max(map(len, ids))
        ids_RT = torch.tensor([[0] * (width - len(row)) + list(row) for row in ids], device=self._model.device)
        lengths_R1 = torch.tensor([[len(row)] for row in ids], device=self._model.device)
        return self._forward(ids_RT, torch.arange(width, device=self._model.device) >= width - lengths_R1)

    def _forward(self, ids_RT: Tensor, real_RT: Tensor) -> Tensor:
        """Compute new slots, of which some may be padding."""
        positions_RT = (self._lengths_R[:, None] + real_RT.cumsum(1) - 1).clamp(min=0)
        if self._model.context is not None:
            # Rows that are done are stepped on until they leave: their positions must not run out of the table.
            positions_RT.clamp_(max=self._model.context - 1)
        self._lengths_R = self._lengths_R + real_RT.sum(1)
        self._mask_RS = torch.cat([self._mask_RS, real_RT], 1)
        mask_RS = self._mask_RS.long()
        return self._model(ids_RT, mask_RS=mask_RS, positions_RT=positions_RT, use_cache=True, cache=self._cache)[0]


class Slots:
    """Together, in one padded cache: right for every model whose attention honours padding masks.

    Args:
        model: computes the scores.
        least_shared: beginnings of at least so many tokens that all prompts have in common are computed once; None
            for models with a window of attention, whose distances the padding behind a shared beginning would change.
    """

    batches = True
    label = "together"

    def __init__(self, model: Causal, *, least_shared: int | None) -> None:
        self._model = model
        self._least_shared = least_shared

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, SlotRows]:
        """Read the prompts at once."""
        rows = SlotRows(self._model)
        return rows.read(prompts, shared=self._shared(prompts)), rows

    def bytes_per_slot(self) -> int:
        """Memory of one token of one row in the cache."""
        return self.start([[0]])[1].bytes_per_slot

    def _shared(self, prompts: Sequence[Sequence[int]]) -> int:
        """Tokens at the beginning of all prompts that are worth computing once; the last token is always left."""
        if self._least_shared is None or len(prompts) < 2:
            return 0
        rows = [tuple(prompt) for prompt in prompts]
        first, last = min(rows), max(rows)  # in lexical order: what these two share, all share
        most = min(map(len, prompts)) - 1
        shared = next((n for n in range(most) if first[n] != last[n]), most)
        return shared if shared >= self._least_shared else 0


class OneRow:
    """A single row, with the model's own cache (state-space layers and others that no padding suits) or none."""

    def __init__(self, model: Causal, ids: Sequence[int], *, cached: bool) -> None:
        self._model = model
        self._ids = list(ids)
        self._cached = cached
        self._cache: Any = None

    def read(self) -> Tensor:
        """The prompt's tokens."""
        return self._advance(self._ids)

    def step(self, ids_R: Tensor) -> Tensor:
        """Append one token."""
        self._ids.append(int(ids_R[0]))
        return self._advance(self._ids[-1:] if self._cached else self._ids)

    def keep(self, rows: Sequence[int]) -> None:
        """A single row goes on or ends."""
        assert list(rows) == [0]

    def join(self, other: OneRow) -> None:
        """Never: this way does not batch."""
        raise AssertionError("rows of this model are generated one by one")

    def _advance(self, ids: Sequence[int]) -> Tensor:
        ids_1T = torch.tensor([ids], device=self._model.device)
        logits, self._cache = self._model(ids_1T, use_cache=self._cached, cache=self._cache)
        return logits


class OneByOne:
    """One row at a time."""

    batches = False

    def __init__(self, model: Causal, *, cached: bool) -> None:
        self._model = model
        self._cached = cached
        self.label = "one by one" if cached else "one by one, without a cache"

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, OneRow]:
        """Read the one prompt."""
        (prompt,) = prompts
        row = OneRow(self._model, prompt, cached=self._cached)
        return row.read(), row

    def bytes_per_slot(self) -> int:
        """Nothing is shared, so nothing is counted."""
        return 0


def _unwrapped(module: nn.Module) -> Any:
    """The model inside a PEFT wrapper, whose own signature says nothing."""
    peft = sys.modules.get("peft")
    return module.get_base_model() if peft is not None and isinstance(module, peft.PeftModel) else module
