"""Ways to step a causal model token by token, from the fastest that is exact for it to the one that always is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

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
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

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
        arguments: dict[str, Any] = dict(self._last_only)
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


class SlotRows:
    """Rows that share one cache, padded on the left so that all of them end at the same slot."""

    def __init__(self, model: Causal, lengths: Sequence[int]) -> None:
        self._model = model
        self._lengths_R = torch.tensor(lengths, device=model.device)
        self._cache = SlotCache()

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """The prompts' tokens, at once."""
        width = max(len(prompt) for prompt in prompts)
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        slots_T = torch.arange(width, device=self._model.device)
        start_R1 = width - self._lengths_R[:, None]
        mask_RT = slots_T >= start_R1
        return self._model(
            torch.tensor(padded, device=self._model.device),
            mask_RS=mask_RT.long(),
            positions_RT=(slots_T - start_R1).clamp(min=0),
            use_cache=True,
            cache=self._cache,
        )[0]

    def step(self, ids_R: Tensor) -> Tensor:
        """Append one token to every row."""
        # Rows that are done are stepped on until they leave: their positions must not run out of the table.
        positions_R1 = self._lengths_R[:, None].clamp(max=(self._model.context or (2**31)) - 1)
        self._lengths_R += 1
        width = self._cache.length + 1
        slots_S = torch.arange(width, device=self._model.device)
        mask_RS = slots_S >= width - self._lengths_R[:, None]
        return self._model(
            ids_R[:, None], mask_RS=mask_RS.long(), positions_RT=positions_R1, use_cache=True, cache=self._cache
        )[0]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows, without the slots that only others used."""
        index = torch.tensor(rows, device=self._model.device)
        self._lengths_R = self._lengths_R[index]
        self._cache.select(index, drop=self._cache.length - int(self._lengths_R.max()))

    def join(self, other: SlotRows) -> None:
        """Take in other rows."""
        self._lengths_R = torch.cat([self._lengths_R, other._lengths_R])
        self._cache.append(other._cache)


class Slots:
    """Together, in one padded cache: right for every model whose attention honours padding masks."""

    batches = True
    label = "together"

    def __init__(self, model: Causal) -> None:
        self._model = model

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, SlotRows]:
        """Read the prompts at once."""
        rows = SlotRows(self._model, [len(prompt) for prompt in prompts])
        return rows.read(prompts), rows


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


def _unwrapped(module: nn.Module) -> Any:
    """The model inside a PEFT wrapper, whose own signature says nothing."""
    peft = sys.modules.get("peft")
    return module.get_base_model() if peft is not None and isinstance(module, peft.PeftModel) else module
