"""OpenAI's layout: each record has `messages`, a list of `{role, content}`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from galley.base import GalleyError
from galley.data.examples import Conversation, Message, Role
from galley.data.source import Record, Request, Row, Source, field_error, kind_of, row_error

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_COLUMNS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
_SHAPE = 'a list such as [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'
_HINT = f"expected {_SHAPE}"


class Messages:
    """Turns with `role` and `content`; content may be text or parts of type text; `weight: 0` is not learned."""

    name = "messages"
    tasks = ("chat",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain when the records hold a list of mappings with a role."""
        column = find_turns(source, "role")
        if column is not None:
            return 1.0
        return 0.8 if "messages" in source.columns else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation a record."""
        column = turns_column(source, request, "role", _COLUMNS)
        for record in source.table():
            turns = turns_of(source.name, record, column, _HINT)
            yield Row(record.number, Conversation(read_messages(source.name, record, column, turns, request)))


def find_turns(source: Source, key: str) -> str | None:
    """The first column whose sampled values are lists of mappings that have the key."""
    for column in source.columns:
        values = [record.fields.get(column) for record in source.sample]
        lists = [value for value in values if isinstance(value, Sequence) and not isinstance(value, str) and value]
        if any(isinstance(value[0], Mapping) and key in value[0] for value in lists):
            return column
    return None


def turns_column(source: Source, request: Request, key: str, names: Sequence[str]) -> str:
    """The column that holds the turns: the user's, the one that looks like it, or the first with a usual name.

    Raises:
        GalleyError: `data-columns` when there is none.
    """
    extra = [role for role in request.columns if role != "messages"]
    column = request.columns.get("messages") or find_turns(source, key)
    column = column or next((name for name in names if name in source.columns), None)
    if extra or column is None or column not in source.columns:
        fault = f"{extra[0]!r} is no role of this format" if extra else f"there is no column {column or names[0]!r}"
        raise GalleyError(
            "data-columns",
            f"{source.name}: {fault}; it has {', '.join(map(repr, source.columns))}",
            hint="name the column that holds the turns: `columns: {messages: ...}`",
        )
    request.used_columns["messages"] = column
    return column


def turns_of(name: str, record: Record, column: str, hint: str) -> Sequence[Mapping[str, Any]]:
    """The turns of one record, each of them a mapping.

    Raises:
        GalleyError: `data-row`.
    """
    turns = record.fields.get(column)
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        raise field_error(name, record, column, "a list of turns", hint=hint)
    for position, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            message = f"field '{column}[{position}]': expected a mapping, found {kind_of(turn)}"
            raise row_error(name, record.number, message, dict(record.fields), hint=hint)
    return cast("Sequence[Mapping[str, Any]]", turns)


def read_messages(
    name: str, record: Record, column: str, turns: Sequence[Mapping[str, Any]], request: Request
) -> tuple[Message, ...]:
    """Messages from mappings with role and content.

    Raises:
        GalleyError: `data-row`, naming the turn and what is wrong in it.
    """
    messages = []
    for position, turn in enumerate(turns):
        role = _ROLES.get(turn["role"]) if isinstance(turn.get("role"), str) else None
        content = _content(turn)
        weight = turn.get("weight")
        if role is None:
            fault = f"'{column}[{position}].role': expected one of {', '.join(_ROLES)}, found {_found(turn, 'role')}"
        elif content is None:
            expected = "a text, or a list of parts of type text"
            fault = f"'{column}[{position}].content': expected {expected}, found {_found(turn, 'content')}"
        elif weight not in (None, 0, 1):
            fault = f"'{column}[{position}].weight': expected 0 or 1, found {kind_of(weight)}"
        else:
            if turn.get("tool_calls"):
                request.count("{count} turns call tools: each call is written as <tool_call>JSON</tool_call>")
            messages.append(Message(role, content, train=weight != 0))
            continue
        raise row_error(name, record.number, f"field {fault}", dict(record.fields), hint=_HINT)
    return tuple(messages)


def _content(turn: Mapping[str, Any]) -> str | None:
    """The text of a turn with its tool calls; None when it is not text."""
    content, calls = turn.get("content"), turn.get("tool_calls")
    if content is None and calls:
        content = ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            return None
        content = "".join(cast("list[str]", parts))
    if not isinstance(content, str):
        return None
    if not calls:
        return content
    written = [_tool_call(call) for call in calls]
    return "\n".join([content, *written] if content else written)


def _tool_call(call: Mapping[str, Any]) -> str:
    """A call as most open models are trained to write it: its name and arguments between tags."""
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # arguments that are not JSON stay the text that they are
            arguments = json.loads(arguments)
    body = json.dumps({"name": function.get("name", ""), "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def _found(turn: Mapping[str, Any], key: str) -> str:
    return kind_of(turn[key]) if key in turn else f"a turn with the keys {', '.join(map(str, turn)) or '(none)'}"


FORMAT = Messages()
