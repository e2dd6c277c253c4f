"""A table with a column for what is asked and one for what is answered (or text and label, or text alone)."""

from __future__ import annotations

from collections.abc import Iterator

from galley.data.columns import choose_columns, guess, needed_roles
from galley.data.examples import Completion, Conversation, Document, Example, Labelled, Message
from galley.data.source import Record, Request, Row, Source, cell_text, note_unused


class Table:
    """Any table; the last resort for records that no other format claims."""

    name = "table"
    tasks = ("chat", "complete", "classify")
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Likely when the columns have known names, possible for any table."""
        if source.records is None or not source.columns:
            return 0.0
        needed = needed_roles({}, source.columns, task)
        return 0.6 if len(guess(source.columns, needed, {})) == 1 else 0.1

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One example a record."""
        columns = source.columns
        explicit = dict(request.columns)
        if _nameless(columns) and not explicit and len(columns) == 2 and request.task == "chat":
            explicit = {"prompt": columns[0], "completion": columns[1]}
        roles = choose_columns(columns, explicit, task=request.task, source=source.name)
        request.used_columns |= roles
        note_unused(source, request, roles.values())
        make = _MAKERS[request.task]
        for record in source.table():
            yield Row(record.number, make(source.name, record, roles))


def _nameless(columns: tuple[str, ...]) -> bool:
    return columns == tuple(f"column_{number}" for number in range(1, len(columns) + 1))


def _conversation(name: str, record: Record, roles: dict[str, str]) -> Example:
    question = Message("user", cell_text(name, record, roles["prompt"]))
    answer = Message("assistant", cell_text(name, record, roles["completion"]))
    if "system" in roles and (system := cell_text(name, record, roles["system"])):
        return Conversation((Message("system", system), question, answer))
    return Conversation((question, answer))


def _completion(name: str, record: Record, roles: dict[str, str]) -> Example:
    if "text" in roles:
        return Document(cell_text(name, record, roles["text"]))
    return Completion(cell_text(name, record, roles["prompt"]), cell_text(name, record, roles["completion"]))


def _labelled(name: str, record: Record, roles: dict[str, str]) -> Example:
    return Labelled(cell_text(name, record, roles["text"]), cell_text(name, record, roles["label"]).strip())


_MAKERS = {"chat": _conversation, "complete": _completion, "classify": _labelled}

FORMAT = Table()
