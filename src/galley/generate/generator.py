"""The decoder: many prompts to answers, with rows that finish making room for those that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from galley.base import MIB, GalleyError
from galley.generate.check import choose_way
from galley.generate.forward import Causal, Rows
from galley.generate.sampling import choose
from galley.generate.settings import Finish, Generation, Sampling
from galley.generate.text import TextStream, decode
from galley.models.proof import evaluating

OnDone = Callable[[int, Generation], None]
"""Called with a prompt's number and its answer as soon as that is complete."""

_COMPACT_SHARE = 8  # rows leave once one in eight is done, and are stepped on for nothing until then
_ADMIT_SHARE = 4  # waiting rows start once a quarter of the places is free
_READ_TOKENS = 4096  # prompt tokens read at once, at most: bounds the memory of activations


@dataclass
class _Row:
    """A prompt on its way to an answer."""

    number: int
    prompt: Sequence[int]
    limit: int
    text: TextStream | None
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None


class Generator:
    """Generates with any causal language model: greedy or sampled, many rows at once or one as a stream.

    A row's answer does not depend on the rows beside it, nor does its random stream. Which way of generating is exact
    for the model is proven on a few tokens when the generator is made; models that padding disturbs are generated one
    by one.

    Args:
        module: a transformers causal language model, PEFT-wrapped or not, or a module that maps ids [R, T] to logits.
        tokenizer: its tokenizer.
        device: where the module lives.
        max_rows: rows that are generated together.
        max_cache_bytes: memory of the cache, over all rows.

    Attributes:
        context: tokens that the model reads at most, prompt and answer together; None where nothing bounds them.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        device: torch.device | str = "cpu",
        max_rows: int = 64,
        max_cache_bytes: int = 256 * MIB,
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        self.context = context_length(module)
        weight = next(module.parameters())
        with evaluating(self.module):
            model = Causal(module, self.device, context=self.context)
            vocab, windowed = _vocabulary(module, tokenizer), _is_windowed(module)
            self._way = choose_way(model, vocab=vocab, dtype=weight.dtype, windowed=windowed)
            self._max_slots = max_cache_bytes // max(1, self._way.bytes_per_slot())
        self._max_rows = max_rows if self._way.batches else 1

    @property
    def way(self) -> str:
        """How rows are generated: `together`, `one by one` or `one by one, without a cache`."""
        return self._way.label

    def generate(
        self, prompts: Sequence[Sequence[int]], settings: Sampling, *, on_done: OnDone | None = None
    ) -> list[Generation]:
        """The answers to all prompts, in their order.

        Args:
            prompts: token ids of each prompt.
            settings: how to choose tokens and when to stop.
            on_done: told of each answer as it completes.

        Raises:
            GalleyError: `prompt-too-long` when a prompt leaves no room in the model's context.
        """
        answers: dict[int, Generation] = {}
        queue = deque(sorted(self._rows(prompts, settings), key=lambda row: -len(row.prompt)))
        with evaluating(self.module):
            for row in self._run(queue, settings):
                answers[row.number] = self._answer(row, settings)
                if on_done is not None:
                    on_done(row.number, answers[row.number])
        return [answers[number] for number in range(len(prompts))]

    def stream(self, prompt: Sequence[int], settings: Sampling) -> Iterator[str]:
        """Pieces of the answer as they become certain; joined, they are its text.

        Raises:
            GalleyError: `prompt-too-long` when the prompt leaves no room in the model's context.
        """
        (row,) = self._rows([prompt], settings)
        return self._stream(row, settings)

    def stop_ids(self, settings: Sampling) -> frozenset[int]:
        """Tokens that end an answer: those of the settings, or of the model and its tokenizer."""
        if settings.stop_ids is not None:
            return frozenset(settings.stop_ids)
        config = getattr(self.module, "generation_config", None)
        declared = getattr(config, "eos_token_id", None)
        ids = declared if isinstance(declared, list) else [declared]
        return frozenset(i for i in [*ids, self.tokenizer.eos_token_id] if i is not None)

    def with_stop_ids(self, settings: Sampling, ids: Sequence[int]) -> Sampling:
        """The settings with these stop tokens beside the model's own, unless they name theirs."""
        if settings.stop_ids is not None:
            return settings
        return replace(settings, stop_ids=tuple(sorted(self.stop_ids(settings) | set(ids))))

    def _rows(self, prompts: Sequence[Sequence[int]], settings: Sampling) -> list[_Row]:
        rows = []
        for number, ids in enumerate(prompts):
            prompt = list(ids) or [self._first_token()]
            room = self.context - len(prompt) if self.context else settings.max_new_tokens
            if room <= 0:
                raise GalleyError(
                    "prompt-too-long",
                    f"prompt {number + 1} has {len(prompt)} tokens, and the model reads {self.context} in all",
                    hint="shorten the prompt",
                )
            text = TextStream(self.tokenizer, settings.stop) if settings.stop else None
            rows.append(_Row(number, prompt, min(settings.max_new_tokens, room), text))
        return rows

    def _first_token(self) -> int:
        """What an empty prompt starts from."""
        first = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if first is None else first)

    def _stream(self, row: _Row, settings: Sampling) -> Iterator[str]:
        text = row.text or TextStream(self.tokenizer)
        stops = self.stop_ids(settings)
        with evaluating(self.module):
            logits, rows = self._way.start([row.prompt])
        while True:
            (token,) = choose(logits, settings, [(0, len(row.ids))], [[*row.prompt, *row.ids]])
            row.ids.append(token)
            if token in stops:
                break
            if piece := text.push(token):
                yield piece
            if text.stopped or len(row.ids) >= row.limit:
                break
            with evaluating(self.module):
                logits = rows.step(torch.tensor([token], device=self.device))
        if piece := text.finish():
            yield piece

    def _run(self, queue: deque[_Row], settings: Sampling) -> Iterator[_Row]:
        """Every row, as it finishes."""
        stops = self.stop_ids(settings)
        active: list[_Row] = []
        rows: Rows | None = None
        while queue or active:
            if fresh := self._admitted(queue, active):
                logits, new = self._way.start([row.prompt for row in fresh])
                yield from _extend(logits, fresh, settings, stops)
                stay = _unfinished(fresh)
                if len(stay) < len(fresh) and stay:
                    new.keep(stay)
                if stay and rows is not None:
                    rows.join(new)
                elif stay:
                    rows = new
                active += [fresh[i] for i in stay]
                continue
            assert rows is not None
            logits = rows.step(torch.tensor([row.ids[-1] for row in active], device=self.device))
            yield from _extend(logits, active, settings, stops)
            stay = _unfinished(active)
            if not stay:
                active, rows = [], None
            elif (len(active) - len(stay)) * _COMPACT_SHARE >= len(active):
                stay = _in_place(stay)
                rows.keep(stay)
                active = [active[i] for i in stay]

    def _admitted(self, queue: deque[_Row], active: Sequence[_Row]) -> list[_Row]:
        """The rows that start now: none, or enough that reading their prompts at once pays."""
        free = self._max_rows - len(active)
        if not queue or (active and free * _ADMIT_SHARE < self._max_rows):
            return []
        fresh: list[_Row] = []
        width = max((len(row.prompt) + row.limit for row in active), default=0)
        while queue and len(fresh) < free:
            row = queue[0]
            width = max(width, len(row.prompt) + row.limit)
            fits = (len(active) + len(fresh) + 1) * width <= self._max_slots
            reads = (len(fresh) + 1) * len(row.prompt) <= _READ_TOKENS
            if not (fits and reads) and (fresh or active):
                break
            fresh.append(queue.popleft())
        return fresh

    def _answer(self, row: _Row, settings: Sampling) -> Generation:
        assert row.finish is not None
        ids = row.ids[:-1] if row.ids[-1] in self.stop_ids(settings) else row.ids
        text = decode(self.tokenizer, ids)
        ends = [at for at in (text.find(stop) for stop in settings.stop) if at >= 0]
        return Generation(tuple(row.ids), text[: min(ends)] if ends else text, row.finish)


def _extend(logits: Tensor, rows: Sequence[_Row], settings: Sampling, stops: frozenset[int]) -> list[_Row]:
    """Choose a token for every row that goes on; those that end with it."""
    seen = [] if settings.repetition_penalty == 1.0 else [[*row.prompt, *row.ids] for row in rows]
    tokens = choose(logits, settings, [(row.number, len(row.ids)) for row in rows], seen)
    done = []
    for row, token in zip(rows, tokens, strict=True):
        if row.finish is not None:
            continue
        row.ids.append(token)
        if row.text is not None and token not in stops:
            row.text.push(token)
        if token in stops or (row.text is not None and row.text.stopped):
            row.finish = "stop"
        elif len(row.ids) >= row.limit:
            row.finish = "length"
        if row.finish is not None:
            done.append(row)
    return done


def _unfinished(rows: Sequence[_Row]) -> list[int]:
    return [index for index, row in enumerate(rows) if row.finish is None]


def _in_place(stay: Sequence[int]) -> list[int]:
    """The rows in an order that moves as few as possible: the last ones fill the places of those that leave."""
    kept, places = set(stay), range(len(stay))
    moved = iter(sorted(kept - set(places), reverse=True))
    return [place if place in kept else next(moved) for place in places]


def _text_config(module: nn.Module) -> Any:
    """The part of a model's config that describes its decoder; None for modules without one."""
    config = getattr(module, "config", None)
    return config.get_text_config(decoder=True) if isinstance(config, PreTrainedConfig) else config


def context_length(module: nn.Module) -> int | None:
    """Tokens that the model reads at most; None where nothing bounds them."""
    return getattr(_text_config(module), "max_position_embeddings", None)


def _is_windowed(module: nn.Module) -> bool:
    """Whether the config names a window of attention."""
    config = _text_config(module)
    names = ("sliding_window", "attention_chunk_size", "attention_window_size", "window_size")
    return any(isinstance(getattr(config, name, None), int) for name in names)


def _vocabulary(module: nn.Module, tokenizer: Any) -> int:
    return int(getattr(_text_config(module), "vocab_size", None) or len(tokenizer))
