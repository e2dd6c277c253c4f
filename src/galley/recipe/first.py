"""A first recipe of three lines, guessed from a data file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from galley.base import GalleyError
from galley.recipe.problems import did_you_mean

TASKS: Final = ("chat", "complete", "classify", "control")

_DATA: Final = {
    "chat": "reasoning-gym:family_relationships",
    "complete": "my-texts/*.txt",
    "classify": "reviews.csv",
    "control": "gym:CartPole-v1",
}
_MODEL: Final = {
    "chat": "smollm2-135m-instruct",
    "complete": "random:15M",
    "classify": "smollm2-135m-instruct",
    "control": "mlp",
}
_LABELS: Final = {"label", "labels", "class", "category", "target", "sentiment", "标签", "类别", "分类"}
_TEXTS: Final = (".txt", ".md")
_TABLES: Final = (".csv", ".tsv", ".xlsx", ".jsonl", ".parquet")


def first_recipe(task: str | None, data: str | None, model: str | None) -> tuple[str, str]:
    """A name for the recipe's file, and its text.

    Args:
        task: one of `TASKS`; guessed from the data when None.
        data: path or other reference; when None the only table in this folder, or else an example.
        model: reference; a small one when None.

    Raises:
        GalleyError: `data-not-found` when the data looks like a file and is none.
    """
    if data is not None and not _exists(data):
        hint = f"tasks are {', '.join(TASKS)}{did_you_mean(data, TASKS)}"
        raise GalleyError("data-not-found", f"{data} does not exist", hint=hint)
    data = data or _only_table(Path())
    task = task or guess_task(data)
    data = data or _DATA[task]
    networks = "hub id, folder, .gguf, my_model.py:Net, or random:15M"
    if task == "control":
        networks = "hidden layers and activation, or my_network.py:Net; left out, the method's own"
    budget = "# budget: {steps: 100000}" if task == "control" else "# budget: {epochs: 3}"
    lines = [
        f"task: {task:<40} # what the finished model will do: {', '.join(TASKS)}",
        f"model: {model or _MODEL[task]:<39} # {networks}",
        f"data: {_quoted(data):<40} # `galley data` shows what is read from it",
        f"{budget:<46} # how long; decided when left out, and `galley plan` says why",
    ]
    stem = re.sub(r"[^\w.-]+", "-", Path(data.rpartition(":")[2]).stem).strip("-.*")
    return f"{stem or task}", "\n".join(lines) + "\n"


def _only_table(folder: Path) -> str | None:
    """The name of the table in the folder, if there is exactly one."""
    tables = [path.name for path in folder.iterdir() if path.suffix.lower() in _TABLES and path.is_file()]
    return tables[0] if len(tables) == 1 else None


def guess_task(data: str | None) -> str:
    """What a data file is likely for, from its name and its first line."""
    if data is None:
        return "chat"
    if data.startswith(("gym:", "pettingzoo:")):
        return "control"
    path = Path(data)
    if path.suffix in _TEXTS:
        return "complete"
    if path.is_file():
        with path.open("rb") as file:
            head = file.readline(4096).decode("utf-8-sig", errors="replace").lower()
        if _LABELS & set(re.findall(r"\w+", head)):
            return "classify"
    if path.is_dir() and any(child.suffix in _TEXTS for child in path.iterdir()):
        return "complete"
    return "chat"


def _exists(data: str) -> bool:
    """Whether the file exists, or it is no file that is meant."""
    return Path(data).exists() or re.match(r"[\w-]{2,}:", data) is not None or "*" in data


def _quoted(text: str) -> str:
    """As YAML takes it."""
    is_plain = re.fullmatch(r"[\w/.][\w/.*: -]*(?<![: ])", text) is not None and ": " not in text
    return text if is_plain else "'" + text.replace("'", "''") + "'"
