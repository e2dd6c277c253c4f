"""From text with supervised spans to token ids with supervised tokens, exact at every border."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, TypeAlias

from galley.base import GalleyError
from galley.data.encoder import TextEncoder

Span: TypeAlias = tuple[int, int]

TrainOn = Literal["targets", "last", "all"]
"""Which tokens are learned: all targets (assistant turns, completions), the last turn only, or every token."""


@dataclass(frozen=True, slots=True)
class MarkedText:
    """One row as text.

    Args:
        text: all of the row.
        spans: what is learned, in characters, ascending.
        prompt_end: where the model takes over for the last learned span: the ids before it are exactly the ids that
            the prompt has when it stands alone, as it does in chat and evaluation.
        opening: put the tokenizer's beginning-of-sequence token first (a chat template writes its own).
        closing: learn the end-of-sequence token after the text, which does not end with one.
        unlearned_turns: assistant turns that could not be marked and are context only.
    """

    text: str
    spans: tuple[Span, ...]
    prompt_end: int | None = None
    opening: bool = False
    closing: bool = False
    unlearned_turns: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row as token ids, with the learned ones as spans of token positions. The first token is never learned."""

    ids: list[int]
    spans: list[Span]
    joined: bool = False
    """Prompt and answer were encoded apart, since the tokenizer merges across their border."""

    @property
    def mask(self) -> list[bool]:
        """For each token, whether it is learned."""
        mask = [False] * len(self.ids)
        for start, stop in self.spans:
            mask[start:stop] = [True] * (stop - start)
        return mask


def select(marked: MarkedText, train_on: TrainOn) -> MarkedText:
    """The same row with the spans that are to be learned."""
    if train_on == "all":
        return replace(marked, spans=((0, len(marked.text)),))
    if train_on == "last":
        return replace(marked, spans=marked.spans[-1:])
    return marked


def encode_marked(encoder: TextEncoder, rows: Sequence[MarkedText]) -> list[Encoded]:
    """Token ids and learned tokens of many rows.

    Raises:
        GalleyError: `data-template` when the tokenizer cannot separate a prompt from its answer.
    """
    cuts = [_Cuts(encoder.units(row.text)) for row in rows]
    needed: list[str] = []
    for row, cut in zip(rows, cuts, strict=True):
        needed.extend(cut.units)
        needed.extend(cut.head(border) for border in _borders(row))
    table = encoder.lookup(unit for unit in needed if unit)
    return [_finish(encoder, row, _encode_row(encoder, row, cut, table)) for row, cut in zip(rows, cuts, strict=True)]


def _borders(row: MarkedText) -> list[int]:
    borders = [border for span in row.spans for border in span]
    return borders if row.prompt_end is None else [*borders, row.prompt_end]


class _Cuts:
    """Where the units of one text begin, to find the token at a character."""

    def __init__(self, units: list[str]) -> None:
        self.units = units
        self.starts = [0, *accumulate(map(len, units))]

    def head(self, border: int) -> str:
        """The part before the border of the unit that the border falls into; empty between two units."""
        index = bisect_right(self.starts, border) - 1
        return self.units[index][: border - self.starts[index]] if border > self.starts[index] else ""

    def tokens(self, border: int, table: Mapping[str, list[int]], first: list[int], encoder: TextEncoder) -> Span:
        """The tokens that straddle the border, as a span: empty where the border falls between two tokens.

        Args:
            border: a character of the text.
            table: ids of units and heads.
            first: number of the first token of each unit.
            encoder: asked only for tails of units, where a token straddles.
        """
        index = bisect_right(self.starts, border) - 1
        head = self.head(border)
        if not head:
            return first[index], first[index]
        unit = self.units[index]
        ids, head_ids = table[unit], table[head]
        low = _common_prefix(ids, head_ids)
        if low == len(head_ids):
            return first[index] + low, first[index] + low
        tail = encoder.encode(unit[len(head) :])
        high = max(low, len(ids) - _common_prefix(ids[::-1], tail[::-1]))
        return first[index] + low, first[index] + high


def _encode_row(encoder: TextEncoder, row: MarkedText, cut: _Cuts, table: Mapping[str, list[int]]) -> Encoded:
    per_unit = [table[unit] for unit in cut.units]
    first = [0, *accumulate(map(len, per_unit))]
    if row.prompt_end is not None:
        # Once more for every row: the ids of the prompt alone begin the ids of the whole.
        low, high = cut.tokens(row.prompt_end, table, first, encoder)
        if low != high:
            return _encode_joined(encoder, row, row.prompt_end)
    spans: list[Span] = []
    for start, stop in row.spans:
        # A token across the border belongs to the header at the start, and to the answer at the end.
        begin, end = (cut.tokens(border, table, first, encoder)[1] for border in (start, stop))
        spans.append((begin, end))
    return Encoded([token for ids in per_unit for token in ids], spans)


def _encode_joined(encoder: TextEncoder, row: MarkedText, border: int) -> Encoded:
    """Prompt and answer encoded apart, as they are when a model answers the prompt."""
    before = MarkedText(row.text[:border], tuple((a, min(b, border)) for a, b in row.spans if a < border))
    left = encode_marked(encoder, [before])[0]
    rest = encoder.continuation(before.text, row.text[border:])
    if rest is None:
        raise GalleyError(
            "data-template",
            "the tokenizer merges the end of the prompt with the beginning of the answer, and cannot encode the answer "
            f"alone: {row.text[max(0, border - 30) : border + 30]!r}",
            hint="remove white space from the beginning of the answer",
        )

    def token_at(place: int) -> int:
        part = encoder.continuation(before.text, row.text[border:place]) or []
        common = _common_prefix(rest, part)
        return len(left.ids) + (common if common == len(part) else common + 1)

    spans = [(token_at(max(start, border)), token_at(stop)) for start, stop in row.spans if stop > border]
    return Encoded(left.ids + rest, [*left.spans, *spans], joined=True)


def _finish(encoder: TextEncoder, row: MarkedText, encoded: Encoded) -> Encoded:
    """Add the opening and closing tokens, once each; the first token of all is never learned."""
    ids, spans = encoded.ids, encoded.spans
    if row.opening and (opening := list(encoder.opening_ids)) and ids[: len(opening)] != opening:
        ids = opening + ids
        spans = [(start + len(opening), stop + len(opening)) for start, stop in spans]
    if row.closing and (end := encoder.tokenizer.eos_token_id) is not None and (not ids or ids[-1] != end):
        ids = [*ids, end]
        spans = [*spans, (len(ids) - 1, len(ids))]
    spans = [(max(start, 1), stop) for start, stop in spans if stop > max(start, 1)]
    return Encoded(ids, spans, encoded.joined)


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = len(right)
    if left[:length] == right:
        return length
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
