"""Marked text of many conversations at the price of one rendering for each sequence of roles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from galley.base import GalleyError
from galley.data.examples import Conversation, Message
from galley.data.masks import MarkedText

Mark: TypeAlias = Callable[[Conversation], MarkedText]
_Shape: TypeAlias = tuple[tuple[str, bool], ...]
_Border: TypeAlias = tuple[int, int]

_EVERYDAY = frozenset({"role", "content", "user", "assistant", "system", "tool"})
"""Words that templates compare roles and keys with, never contents."""


class Layouts:
    """Marks conversations by filling contents into the literal text that a template writes around them.

    Most templates write fixed text around each content. The text for a sequence of roles is taken from one rendering
    with probes. Contents that a template might look into (white space at an end, empty, or holding a word that
    the template names, such as `</think>`) are always rendered; so is everything until `prove` has compared.

    Args:
        mark: the slow and exact way.
        source: the template's Jinja text.
    """

    def __init__(self, mark: Mark, source: str) -> None:
        self._mark = mark
        self._named = _named_texts(source)
        self._known: dict[_Shape, _Layout | None] = {}
        self._fast = False

    def mark(self, conversation: Conversation) -> MarkedText:
        """The marked text of a conversation."""
        layout = self._layout(conversation.messages) if self._fast else None
        return self._mark(conversation) if layout is None else layout.fill(conversation.messages)

    def prove(self, conversations: Sequence[Conversation]) -> bool:
        """Compare both ways on these conversations; the fast one is used from now on only if all are equal."""
        self._fast = True
        self._fast = all(self.mark(row) == self._mark(row) for row in conversations)
        return self._fast

    def _layout(self, messages: Sequence[Message]) -> _Layout | None:
        for message in messages:
            content = message.content
            if not content or content[0].isspace() or content[-1].isspace() or self._named.search(content):
                return None
        shape = tuple((message.role, message.train) for message in messages)
        if shape not in self._known:
            self._known[shape] = self._learn(messages)
        return self._known[shape]

    def _learn(self, messages: Sequence[Message]) -> _Layout | None:
        probes = [f"Zq7x{number:05d}probeX9q" for number in range(len(messages))]
        try:
            probed = (replace(message, content=probe) for message, probe in zip(messages, probes, strict=True))
            marked = self._mark(Conversation(tuple(probed)))
        except GalleyError:
            # The slow way says what is wrong, about the real row.
            return None
        return _Layout.of(marked, probes)


@dataclass(frozen=True)
class _Layout:
    """Literal texts around the contents; borders of spans as (number of the literal, offset in it)."""

    literals: tuple[str, ...]
    order: tuple[int, ...]
    spans: tuple[tuple[_Border, _Border], ...]
    prompt_end: _Border | None
    marked: MarkedText

    @classmethod
    def of(cls, marked: MarkedText, probes: Sequence[str]) -> _Layout | None:
        if any(marked.text.count(probe) != 1 for probe in probes):
            return None
        order = sorted(range(len(probes)), key=lambda number: marked.text.index(probes[number]))
        starts = [marked.text.index(probes[number]) for number in order]
        stops = [start + len(probes[number]) for start, number in zip(starts, order, strict=True)]
        literals = list(zip([0, *stops], [*starts, len(marked.text)], strict=True))

        def place(border: int) -> _Border | None:
            return next(((i, border - a) for i, (a, b) in enumerate(literals) if a <= border <= b), None)

        spans = [(a, b) for span in marked.spans if (a := place(span[0])) and (b := place(span[1]))]
        prompt_end = None if marked.prompt_end is None else place(marked.prompt_end)
        if len(spans) != len(marked.spans) or (prompt_end is None) != (marked.prompt_end is None):
            return None
        texts = tuple(marked.text[a:b] for a, b in literals)
        return cls(texts, tuple(order), tuple(spans), prompt_end, marked)

    def fill(self, messages: Sequence[Message]) -> MarkedText:
        contents = [messages[number].content for number in self.order]
        pairs = list(zip(self.literals, [*contents, ""], strict=True))
        starts = [0, *accumulate(len(literal) + len(content) for literal, content in pairs)]
        spans = tuple((starts[i] + x, starts[j] + y) for (i, x), (j, y) in self.spans)
        end = None if self.prompt_end is None else starts[self.prompt_end[0]] + self.prompt_end[1]
        marked = self.marked
        text = "".join([text for pair in pairs for text in pair])
        return MarkedText(text, spans, end, marked.opening, marked.closing, marked.unlearned_turns)


def _named_texts(source: str) -> re.Pattern[str]:
    """Matches any text that the template names in an expression, other than white space and everyday words."""
    import jinja2

    strings = [value[1:-1] for _, kind, value in jinja2.Environment().lex(source) if kind == "string"]
    # As Jinja reads them: a string may hold a line break as it is, or written as an escape.
    named = {text.encode("ascii", "backslashreplace").decode("unicode-escape") for text in strings}
    named = {text.strip() for text in named if text.strip() and text not in _EVERYDAY}
    return re.compile("|".join(re.escape(text) for text in sorted(named, key=len, reverse=True)) or r"(?!)")
