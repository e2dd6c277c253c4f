"""Run folders with a result, made without training: tiny models whose trainable weights are moved at random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from galley import data, job, methods, models, recipe
from galley.data.template import Template
from galley.manifest import manifest
from galley.models import adapters
from galley.runs import RunFolder
from models import hub_folders


@dataclass(frozen=True)
class Made:
    """A finished run, and the trained module that is still in memory."""

    folder: RunFolder
    module: Any
    tokenizer: Any
    held_out: Sequence[Any]


def chat_rows(path: Path, count: int = 60, *, answer: str = "yes") -> Path:
    """A JSON Lines file of questions with short answers."""
    rows = ({"question": f"Is {n} a number, and why {n * n}?", "answer": f"{answer} {n % 3}"} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_run(
    root: Path,
    rows: Path,
    *,
    task: str = "chat",
    family: str = "llama",
    model: str | None = None,
    tuning: str = "lora",
    evaluate: dict[str, Any] | None = None,
    moved: float = 0.3,
) -> Made:
    """A finished run.

    Args:
        root: folder of runs.
        rows: the data.
        task: of the recipe.
        family: of the tiny base model.
        model: another model reference.
        tuning: full or an adapter.
        evaluate: section of the recipe.
        moved: size of the random change that stands for training.
    """
    reference = model or str(hub_folders.folder(root / "base", family))
    given = {
        "task": task,
        "model": reference,
        "data": str(rows),
        "evaluate": {"held_out": 0.4, "max_new_tokens": 8, **(evaluate or {})},
        "override": {"tuning": tuning, "precision": "fp32"},
    }
    asked = recipe.load(given, methods=methods)
    spec = models.resolve(asked.model)
    dataset = data.read(asked.data, task=asked.task, evaluate=asked.evaluate, seed=asked.seed)
    labels = dataset.statistics.labels
    plan = job.plan(asked)
    module, tokenizer = models.load(spec, precision="fp32", labels=labels, offered={"num_classes": len(labels)})
    module = adapters.apply(tuning, module, rank=4, alpha=8.0)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad and weight.dim() > 1:
                weight.add_(torch.randn_like(weight) * moved * (weight.std() if tuning == "full" else 1.0))
    folder = RunFolder.create(
        root / "runs",
        "run",
        recipe=recipe.dump(asked),
        plan=plan.model_dump(mode="json"),
        manifest=manifest(spec, dataset, tokenizer, seed=0),
    )
    stops = Template(tokenizer).stop_ids if task == "chat" else ()
    models.save(module.eval(), tokenizer, folder.result, spec=spec, stop_ids=stops, labels=labels)
    return Made(folder, module, tokenizer, dataset.held_out)
