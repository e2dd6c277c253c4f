"""Small whole jobs that tests can run in seconds: one of every task, on models of a few layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from galley import job
from galley.base import Observer
from galley.runs import RunFolder

WORDS = "oar sail tide hull mast deck keel rope wind wave port crew star moon rock sand".split()  # noqa: SIM905
NET = """
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))
"""


def recipe(task: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """A recipe of that task whose files are written into the folder."""
    asked: dict[str, Any] = {
        "task": task,
        "name": task,
        "evaluate": {"verdict": False, "every": 3},
        "budget": {"steps": 7},
    }
    asked["override"] = {"global_batch": 6, "threads": 1}
    if task == "chat":
        rows = [{"question": f"{a} and {b}?", "answer": f"{b} {a}"} for a in WORDS for b in WORDS[:4]]
        asked |= {"model": "random:150k", "data": _write(folder / "chat.jsonl", rows)}
    elif task == "complete":
        rows = [{"text": " ".join(WORDS[i:] + WORDS[:i])} for i in range(len(WORDS))] * 3
        asked |= {"model": "random:150k", "data": _write(folder / "text.jsonl", rows)}
    else:
        (folder / "net.py").write_text(NET)
        asked |= {"model": f"{folder / 'net.py'}:Net", "data": {"path": "package:digits", "rows": 300}}
    for section, values in changes.items():
        asked[section] = {**asked.get(section, {}), **values} if isinstance(values, dict) else values
    return asked


def run(asked: dict[str, Any], root: Path, *, resume: str = "auto", observer: Observer | None = None) -> RunFolder:
    """Read and train it."""
    return job.train(job.read_recipe(asked), runs_root=root, resume=resume, observer=observer)


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    """The weights of the result."""
    [path] = folder.result.glob("*/*.safetensors")
    return load_file(path)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bitwise equality."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def _write(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)
