"""Dialogue corpora of chatterbot: YAML files with `categories` and `conversations`, lists of what was said."""

from __future__ import annotations

from collections.abc import Iterator

from galley.data.examples import Conversation, Message
from galley.data.source import Record, Request, Row, Source, as_text, field_error

_HINT = "expected a list such as [[a question, an answer], ...]"


class Chatterbot:
    """In files of the category `conversations` the lines take turns; elsewhere each line answers the first one."""

    name = "chatterbot"
    tasks = ("chat",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain for YAML files with `conversations`."""
        return 1.0 if source.suffix in ("yml", "yaml") and "conversations" in source.columns else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """A conversation for each dialogue, or for each answer."""
        for record in source.table():
            categories = record.fields.get("categories") or []
            in_turns = "conversations" in [str(category).lower() for category in categories]
            dialogues = record.fields.get("conversations")
            if not isinstance(dialogues, list):
                raise field_error(source.name, record, "conversations", "a list of dialogues", hint=_HINT)
            for number, dialogue in enumerate(dialogues, 1):
                lines = _lines(source.name, record, number, dialogue)
                for conversation in _turns(lines) if in_turns else _answers(lines):
                    yield Row(number, conversation)


def _lines(name: str, record: Record, number: int, dialogue: object) -> list[str]:
    texts = [as_text(line) for line in dialogue] if isinstance(dialogue, list) else [as_text(dialogue)]
    if any(text is None for text in texts):
        shown = Record(number, {"conversations": dialogue})
        raise field_error(name, shown, "conversations", "a list of texts", hint=_HINT)
    return [text.strip() for text in texts if text is not None]


def _turns(lines: list[str]) -> list[Conversation]:
    spoken = [Message("assistant" if position % 2 else "user", line) for position, line in enumerate(lines)]
    return [Conversation(tuple(spoken))]


def _answers(lines: list[str]) -> list[Conversation]:
    question = Message("user", lines[0] if lines else "")
    # A question without an answer is given too, so that the reader counts it.
    return [Conversation((question, Message("assistant", answer))) for answer in lines[1:] or [""]]


FORMAT = Chatterbot()
