"""What to sample, and what comes back. Plain data, so that it can be read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_COLDEST = 1e-6
Finish = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen and when an answer ends. The defaults are greedy.

    Args:
        max_new_tokens: longest answer, in tokens.
        temperature: 0 takes the likeliest token; 1 samples from the model's own distribution.
        top_k: keep this many likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens whose probability reaches this; 1 keeps all.
        min_p: keep tokens at least this share as likely as the likeliest; 0 keeps all.
        repetition_penalty: divides the positive scores (multiplies the negative ones) of tokens already there.
        seed: every row has its own random stream, made of the seed and of the row's number.
        stop_ids: token ids that end an answer; None takes those of the model and its tokenizer.
        stop: texts that end an answer; they are not part of its text.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken: below this, no score divided by the temperature is finite."""
        return self.temperature < _COLDEST


@dataclass(frozen=True)
class Generation:
    """One answer.

    Args:
        ids: every token that was generated, the stopping one included.
        text: the answer as text, without special tokens and without the stop text.
        finish: `stop` when the model ended it, `length` when the limit did.
    """

    ids: tuple[int, ...]
    text: str
    finish: Finish
