"""ShareGPT's layout: each record has `conversations`, a list of `{from, value}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from galley.data.examples import Conversation, Message, Role
from galley.data.formats.messages import detect_turns, turns_column, turns_of
from galley.data.source import Request, Row, Source, kind_of, row_error

_ROLES: dict[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_HINT = 'expected a list such as [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]'


class ShareGpt:
    """Turns with `from` and `value`; a `system` column beside them comes first."""

    name = "sharegpt"
    tasks = ("chat",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain when the records hold a list of mappings with `from`."""
        return detect_turns(source, "from") or (0.7 if "conversations" in source.columns else 0.0)

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation a record."""
        column = turns_column(source, request, "from", beside=("system",))
        for record in source.table():
            turns = turns_of(source.name, record, column, _HINT)
            messages = []
            for position, turn in enumerate(turns):
                fault = _fault(turn)
                if fault:
                    message = f"field '{column}[{position}]': {fault}"
                    raise row_error(source.name, record.number, message, dict(record.fields), hint=_HINT)
                messages.append(Message(_ROLES[turn["from"].lower()], turn["value"], train=turn.get("weight") != 0))
            system = record.fields.get("system")
            if isinstance(system, str) and system and not (messages and messages[0].role == "system"):
                messages.insert(0, Message("system", system))
            yield Row(record.number, Conversation(tuple(messages)))


def _fault(turn: Mapping[str, Any]) -> str:
    """What is wrong with a turn; empty when nothing is."""
    role, value = turn.get("from"), turn.get("value")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        return f"expected `from` to be one of {', '.join(_ROLES)}, found {kind_of(role)}"
    if not isinstance(value, str):
        return f"expected `value` to be a text, found {kind_of(value)}"
    if turn.get("weight") not in (None, 0, 1):
        return f"expected `weight` to be 0 or 1, found {kind_of(turn['weight'])}"
    return ""


FORMAT = ShareGpt()
