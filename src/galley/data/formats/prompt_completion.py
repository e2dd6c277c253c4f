"""`prompt` and `completion`: plain texts, or lists of messages on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from galley.base import GalleyError
from galley.data.examples import Completion, Conversation, Message
from galley.data.formats.messages import read_messages, turns_of
from galley.data.source import Record, Request, Row, Source, cell_text, field_error, note_unused

_HINT = 'expected two texts, or two lists such as [{"role": "user", "content": "..."}]'


class PromptCompletion:
    """Only the completion is learned. Under the task `complete` no chat template is put around plain texts."""

    name = "prompt-completion"
    tasks = ("chat", "complete")
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Likely when both columns exist."""
        if source.records is None or task not in self.tasks:
            return 0.0
        return 0.9 if {"prompt", "completion"} <= set(source.columns) else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation (or completion) a record."""
        prompt = request.columns.get("prompt", "prompt")
        completion = request.columns.get("completion", "completion")
        unknown = [role for role in request.columns if role not in ("prompt", "completion")]
        missing = [column for column in (prompt, completion) if column not in source.columns]
        if unknown or missing:
            fault = f"{unknown[0]!r} is no role of this format" if unknown else f"there is no column {missing[0]!r}"
            raise GalleyError(
                "data-columns",
                f"{source.name}: {fault}; it has {', '.join(map(repr, source.columns))}",
                hint="`columns: {prompt: ..., completion: ...}` names others",
            )
        request.used_columns |= {"prompt": prompt, "completion": completion}
        note_unused(source, request, (prompt, completion))
        for record in source.table():
            yield Row(record.number, _example(source.name, record, prompt, completion, request))


def _example(name: str, record: Record, prompt: str, completion: str, request: Request) -> Conversation | Completion:
    sides = [_is_turns(record, prompt), _is_turns(record, completion)]
    if not any(sides):
        question, answer = cell_text(name, record, prompt), cell_text(name, record, completion)
        if request.task == "complete":
            return Completion(question, answer)
        return Conversation((Message("user", question), Message("assistant", answer)))
    if not all(sides):
        odd = completion if sides[0] else prompt
        raise field_error(name, record, odd, "a list of messages, as in the other column", hint=_HINT)
    if request.task == "complete":
        raise field_error(
            name,
            record,
            prompt,
            "a text",
            hint="messages are for conversations: use `task: chat`",
        )
    before = read_messages(name, record, prompt, turns_of(name, record, prompt, _HINT), request)
    after = read_messages(name, record, completion, turns_of(name, record, completion, _HINT), request)
    # An assistant turn inside the prompt is context, and is not learned.
    context = tuple(Message(message.role, message.content, train=False) for message in before)
    return Conversation((*context, *after))


def _is_turns(record: Record, column: str) -> bool:
    value = record.fields.get(column)
    return isinstance(value, Sequence) and not isinstance(value, str)


FORMAT = PromptCompletion()
