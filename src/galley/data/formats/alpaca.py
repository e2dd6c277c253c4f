"""Alpaca's layout: `instruction`, an optional `input` beside it, and `output`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from galley.base import GalleyError
from galley.data.examples import Completion, Conversation, Message
from galley.data.source import Record, Request, Row, Source, cell_text, field_error, note_unused

_ROLES = {"prompt": "instruction", "input": "input", "completion": "output", "system": "system", "history": "history"}


class Alpaca:
    """The input is put below the instruction after an empty line; `history` holds earlier (question, answer) pairs."""

    name = "alpaca"
    tasks = ("chat", "complete")
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Likely with both `instruction` and `output`."""
        if source.records is None or task not in self.tasks:
            return 0.0
        return 0.9 if {"instruction", "output"} <= set(source.columns) else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation (or completion) a record."""
        roles = _roles(source, request)
        request.used_columns |= roles
        note_unused(source, request, roles.values())
        for record in source.table():
            prompt = cell_text(source.name, record, roles["prompt"])
            more = cell_text(source.name, record, roles["input"]) if "input" in roles else ""
            question = f"{prompt}\n\n{more}" if prompt and more else prompt or more
            answer = cell_text(source.name, record, roles["completion"])
            if request.task == "complete":
                yield Row(record.number, Completion(question, answer))
                continue
            messages = [*_earlier(source.name, record, roles), Message("user", question), Message("assistant", answer)]
            if "system" in roles and (system := cell_text(source.name, record, roles["system"])):
                messages.insert(0, Message("system", system))
            yield Row(record.number, Conversation(tuple(messages)))


def _roles(source: Source, request: Request) -> dict[str, str]:
    """Role to column; the usual names unless the user gives others."""
    unknown = [role for role in request.columns if role not in _ROLES]
    roles = {role: request.columns.get(role, usual) for role, usual in _ROLES.items()}
    missing = [
        column
        for role, column in roles.items()
        if column not in source.columns and (role in ("prompt", "completion") or role in request.columns)
    ]
    if unknown or missing:
        fault = f"{unknown[0]!r} is no role of this format" if unknown else f"there is no column {missing[0]!r}"
        raise GalleyError(
            "data-columns",
            f"{source.name}: {fault}; it has {', '.join(map(repr, source.columns))}",
            hint=f"roles are {', '.join(_ROLES)}, for example `columns: {{prompt: instruction, completion: output}}`",
        )
    return {role: column for role, column in roles.items() if column in source.columns}


def _earlier(name: str, record: Record, roles: dict[str, str]) -> list[Message]:
    """The turns of `history`."""
    history = record.fields.get(roles["history"]) if "history" in roles else None
    if not history:
        return []
    messages = []
    for pair in history if isinstance(history, Sequence) and not isinstance(history, str) else [history]:
        sound = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not sound or not all(isinstance(text, str) for text in pair):
            raise field_error(name, record, roles["history"], "a list of [question, answer] pairs")
        messages += [Message("user", pair[0]), Message("assistant", pair[1])]
    return messages


FORMAT = Alpaca()
