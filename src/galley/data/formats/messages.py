"""OpenAI's layout: each record has `messages`, a list of `{role, content}`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from galley.base import GalleyError
from galley.data.examples import Conversation, Message, Role
from galley.data.source import Record, Request, Row, Source, field_error, kind_of, note_unused, row_error

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
TURNS_COLUMNS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
"""Usual names of a column of turns, the most usual first."""
_SHAPE = 'a list such as [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'
_HINT = f"expected {_SHAPE}"


class Messages:
    """Turns with `role` and `content`; content may be text or parts of type text; `weight: 0` is not learned."""

    name = "messages"
    tasks = ("chat",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain when the records hold a list of mappings with a role."""
        return detect_turns(source, "role") or (0.8 if "messages" in source.columns else 0.0)

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation a record."""
        column = turns_column(source, request, "role")
        for record in source.table():
            turns = turns_of(source.name, record, column, _HINT)
            yield Row(record.number, Conversation(read_messages(source.name, record, column, turns, request)))


def find_turns(source: Source, key: str) -> list[str]:
    """Columns whose sampled values are lists of mappings that have the key."""
    return [column for column in source.columns if any(_has_turns(record, column, key) for record in source.sample)]


def _has_turns(record: Record, column: str, key: str) -> bool:
    value = record.fields.get(column)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], Mapping) and key in value[0]


def detect_turns(source: Source, key: str) -> float:
    """Certain when a column of a usual name holds turns, likely when another one does."""
    found = find_turns(source, key)
    if found:
        return 1.0 if set(found) & set(TURNS_COLUMNS) else 0.85
    return 0.0


def turns_column(source: Source, request: Request, key: str, *, beside: Sequence[str] = ()) -> str:
    """The column that holds the turns: the user's, else one that looks like it, else one with a usual name.

    Args:
        source: the records.
        request: gets the column, and a note on columns that are not read.
        key: what each turn has, such as `role`.
        beside: other columns that the format reads.

    Raises:
        GalleyError: `data-columns` when there is none, or when several could be meant.
    """
    looks = find_turns(source, key)
    usual = [name for name in TURNS_COLUMNS if name in (looks or source.columns)]
    candidates = [request.columns["messages"]] if "messages" in request.columns else usual[:1] or looks
    extra = [role for role in request.columns if role != "messages"]
    if extra:
        fault = f"{extra[0]!r} is no role of this format"
    elif len(candidates) != 1:
        fault = f"several columns hold turns ({', '.join(candidates)})" if candidates else "no column holds turns"
    elif candidates[0] not in source.columns:
        fault = f"there is no column {candidates[0]!r}"
    else:
        request.used_columns["messages"] = candidates[0]
        note_unused(source, request, [candidates[0], *beside])
        return candidates[0]
    raise GalleyError(
        "data-columns",
        f"{source.name}: {fault}; it has {', '.join(map(repr, source.columns))}",
        hint="name the column that holds the turns: `columns: {messages: ...}`",
    )


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
                request.count("turns that call tools, written as <tool_call>JSON</tool_call>: {count}")
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
