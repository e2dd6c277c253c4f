"""Short ways to read data in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from galley.data import Conversation, Dataset, Example, read
from galley.recipe.schema import DataSection, EvaluateSection


def read_data(
    path: Path | str, task: str = "chat", *, held_out: float | str = 0.0, seed: int = 0, rows: int = 200, **section: Any
) -> Dataset:
    """Read with nothing held out unless asked for."""
    most = section.pop("most", None)
    return read(
        DataSection(path=str(path), rows=most, **section),
        task=task,
        evaluate=EvaluateSection(held_out=held_out, rows=rows),
        seed=seed,
    )


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """One object a line."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def turns(example: Example) -> list[tuple[str, str, bool]]:
    """Role, content and whether it is learned, of each message."""
    assert isinstance(example, Conversation)
    return [(message.role, message.content, message.train) for message in example.messages]
