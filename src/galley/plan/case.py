"""What the planner has to decide about: the recipe together with the facts of model, data and hardware."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from galley.data.dataset import DataStatistics
from galley.data.samples import EncodeReport
from galley.models.spec import ModelSpec
from galley.plan.types import Hardware
from galley.recipe.schema import Recipe, Tuning

FAST_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma"})
"""Families for which the hand-written step is written."""
CHARACTERS_PER_TOKEN = 3.6
"""Of English under a vocabulary of about 50,000; before tokenising nothing better is known."""
TOKENS_PER_WIDE_CHARACTER = 1.9
"""Of Chinese under the same vocabulary (measured: SmolLM2 on chatterbot's dialogues)."""
TEMPLATE_TOKENS = 24
"""Role headers and a short system message of a chat template, once a row."""
_ESTIMATED_SUPERVISED_SHARE = 0.5
_ESTIMATED_DEVIATION = 0.3
"""Over the mean."""
_NORMAL_95 = 1.645
"""Standard deviations from the median to the 95th percentile."""


def device_kind(device: str) -> str:
    """`cuda` of `cuda:1`."""
    return device.partition(":")[0]


@dataclass(frozen=True)
class Case:
    """One job to plan.

    Args:
        counted: what encoding gave, once it was done; else tokens are estimated from characters.
        encoded_rows: samples that encoding gave; a long document counts once for each of its pieces.
        max_length: the limit that the rows were encoded with, when they were.
    """

    recipe: Recipe
    spec: ModelSpec
    statistics: DataStatistics
    hardware: Hardware
    method: str
    counted: EncodeReport | None = None
    encoded_rows: int | None = None
    max_length: int | None = None

    @property
    def from_scratch(self) -> bool:
        """Whether the weights start random."""
        return self.spec.source == "random" or self.spec.kind == "module"

    @property
    def has_tokens(self) -> bool:
        """Whether rows have lengths (images and other arrays do not)."""
        return self.spec.kind != "module"

    @property
    def is_documents(self) -> bool:
        """Whether long rows are cut into pieces instead of truncated."""
        return self.statistics.example_kind == "document"

    @cached_property
    def tokens(self) -> int:
        """Tokens of one epoch; rows where there are no tokens."""
        if self.counted is not None:
            kept = self.counted.tokens_in - self.counted.tokens_cut - self.counted.tokens_dropped
            return kept + self.counted.tokens_repeated
        if not self.has_tokens:
            return self.statistics.rows
        return round(self.statistics.characters * self._per_character) + self.statistics.rows * self._overhead

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row before truncation."""
        if self.counted is not None:
            return max(1, self.counted.lengths[2])
        if not self.has_tokens:
            return 1
        return round(self.statistics.longest_characters * self._per_character) + self._overhead

    def rows(self, max_length: int) -> int:
        """Training rows; documents count by their pieces."""
        if self.counted is not None:
            return self.encoded_rows or self.counted.rows_kept
        pieces = self.tokens // max_length if self.is_documents else 0
        return self.statistics.rows + pieces

    def mean(self, max_length: int) -> float:
        """Tokens of a row on average, as trained."""
        return min(float(max_length), self.tokens / max(1, self.rows(max_length)))

    def deviation(self, max_length: int) -> float:
        """Standard deviation of the rows' tokens, as trained: by their median and 95th percentile, once counted."""
        if self.counted is None or self.is_documents:
            return _ESTIMATED_DEVIATION * self.mean(max_length)
        median, high, _ = (min(length, max_length) for length in self.counted.lengths)
        return (high - median) / _NORMAL_95

    def suits_fast_path(self, tuning: Tuning) -> bool:
        """Whether the hand-written step may serve; the loaded model has the last word."""
        pins = self.recipe.override
        able = self.spec.family in FAST_FAMILIES and tuning == "lora" and not pins.dropout
        return able and pins.fast_path is not False

    @cached_property
    def supervised_share(self) -> float:
        """Share of the tokens that are learned."""
        if self.counted is not None:
            return self.counted.supervised_tokens / max(1, self.tokens)
        return 1.0 if self.is_documents else _ESTIMATED_SUPERVISED_SHARE

    @property
    def _per_character(self) -> float:
        """Tokens of a character, about."""
        wide = self.statistics.wide_share
        return (1 - wide) / CHARACTERS_PER_TOKEN + wide * TOKENS_PER_WIDE_CHARACTER

    @property
    def _overhead(self) -> int:
        return TEMPLATE_TOKENS if self.statistics.example_kind == "conversation" else 1
