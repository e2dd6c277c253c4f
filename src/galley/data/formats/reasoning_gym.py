"""Tasks that `reasoning-gym` generates: the question is the prompt, the answer is what should follow."""

from __future__ import annotations

from collections.abc import Iterator

from galley.data.examples import Conversation, Message
from galley.data.source import Request, Row, Source, not_this_format


class ReasoningGym:
    """`data: reasoning-gym:TASK`; the task's own scorer judges answers."""

    name = "reasoning-gym"
    tasks = ("chat",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain for generated tasks."""
        return 1.0 if source.scheme == "reasoning-gym" else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One conversation a generated row, with what the scorer needs to find the row again."""
        if not self.detect(source, request.task):
            raise not_this_format(source.name, "a generated task, reasoning-gym:TASK")
        for record in source.table():
            fields = record.fields
            messages = (Message("user", fields["question"]), Message("assistant", fields["answer"]))
            meta = {key: fields[key] for key in ("seed", "size", "index")}
            yield Row(record.number, Conversation(messages, meta))


FORMAT = ReasoningGym()
