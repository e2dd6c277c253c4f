"""Find what is learned in a rendered conversation: the answers and their closings, never the headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from galley.base import GalleyError
from galley.data.examples import Message
from galley.data.masks import MarkedText, Span

PROBE = "Zq7xAnswerProbeXz9q"
"""Stands in for a content to see where it lands; no template or data has it."""


class Renderer(Protocol):
    """The part of a template that marking needs."""

    stops: tuple[str, ...]
    """Texts that close an answer, such as `<|im_end|>`."""

    @property
    def has_markers(self) -> bool:
        """Whether the template has `{% generation %}` blocks."""

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
        """The text of the messages."""

    def render_generated(self, messages: Sequence[Message]) -> tuple[str, list[Span]]:
        """The text, and the spans that the template itself marks as generated."""


def mark_conversation(renderer: Renderer, messages: Sequence[Message]) -> MarkedText:
    """The text of a conversation with the spans of its trained assistant turns.

    A turn is learned from where the generation prompt ends to its closing token. It must stand right behind exactly
    the text that the model is prompted with when it answers; earlier turns for which a template says something else
    once the conversation has gone on are context only, and counted.

    Raises:
        GalleyError: `data-template` when the template refuses the messages, or the last answer cannot be marked.
    """
    trained = [i for i, message in enumerate(messages) if message.role == "assistant" and message.train]
    if renderer.has_markers:
        text, marks = renderer.render_generated(messages)
        turns = [i for i, message in enumerate(messages) if message.role == "assistant"]
        generated = dict(zip(turns, marks, strict=True)) if len(turns) == len(marks) else {}
    else:
        text, generated = renderer.render(messages), {}
    found = {i: span for i in trained if (span := _turn(renderer, messages, i, text, generated.get(i)))}
    if trained and trained[-1] not in found:
        raise GalleyError(
            "data-template",
            "the last answer cannot be found in the rendered conversation, since the chat template writes the "
            "conversation so far differently when it asks for an answer",
            hint="use a chat template whose generation prompt is how it begins an assistant turn",
        )
    spans = tuple((start, stop) for _, start, stop in found.values())
    last = messages[-1] if messages else None
    open_end = bool(spans) and last is not None and last.role == "assistant" and last.train
    return MarkedText(
        text,
        spans,
        prompt_end=found[trained[-1]][0] if spans else None,
        closing=open_end and not text[: spans[-1][1]].endswith(renderer.stops),
        unlearned_turns=len(trained) - len(found),
    )


def _turn(
    renderer: Renderer, messages: Sequence[Message], index: int, text: str, generated: Span | None
) -> tuple[int, int, int] | None:
    """Where the prompt of a turn ends, and the characters of the turn that are learned."""
    prompt = _prompt(renderer, messages[:index])
    if prompt is None or not text.startswith(prompt):
        return None
    begin = len(prompt)
    if generated is not None:
        start, stop = max(generated[0], begin), generated[1]
        return (begin, start, _closed(renderer, text, start, stop)) if start < stop else None
    end = _turn_end(renderer, messages, index, text, begin)
    return None if end is None else (begin, begin, _closed(renderer, text, begin, end))


def _prompt(renderer: Renderer, messages: Sequence[Message]) -> str | None:
    """What the model is given to answer; None where a template cannot ask (no message yet, for example)."""
    try:
        return renderer.render(messages, add_generation_prompt=True)
    except GalleyError:
        return None


def _turn_end(renderer: Renderer, messages: Sequence[Message], index: int, text: str, begin: int) -> int | None:
    """Where the text of a turn ends, header of the next one not included."""
    if index == len(messages) - 1:
        return len(text)
    so_far = renderer.render(messages[: index + 1])
    if text.startswith(so_far) and len(so_far) > begin:
        return len(so_far)
    # The template rewrites a turn once others follow (it drops reasoning, or writes an end only at the end): put a
    # probe in place of the content, and what follows the probe is what follows the content.
    probed = [*messages[:index], Message("assistant", PROBE), *messages[index + 1 :]]
    _, found, tail = renderer.render(probed).partition(PROBE)
    if not found or not text.endswith(tail) or len(text) - len(tail) < begin:
        return None
    return len(text) - len(tail)


def _closed(renderer: Renderer, text: str, start: int, end: int) -> int:
    """The end of the learned text: behind the closing of the turn, which may stand just behind `end`."""
    behind = len(text[end:]) - len(text[end:].lstrip())
    for stop in renderer.stops:
        if text.startswith(stop, end + behind):
            return end + behind + len(stop)
    last = max(
        (text.rfind(stop, start, end) + len(stop) for stop in renderer.stops if stop in text[start:end]), default=0
    )
    # White space behind the closing is the template's, not the model's.
    return last if last and not text[last:end].strip() else end
