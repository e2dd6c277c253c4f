"""Write a decision function in another form, run what was written, and compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from galley.base import GalleyError
from galley.export import registry
from galley.export.whole import Whole
from galley.models.control.decision import Decision
from galley.models.control.results import has_policy, load_policy
from galley.runs import RunFolder, disk_full_is_an_error
from galley.runs.parity import Parity, note_parity

if TYPE_CHECKING:
    from galley.export.base import Form

_ROWS, _SEED = 256, 0
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ExportResult:
    """What was written.

    Args:
        path: the file.
        form: its form, e.g. `onnx`.
        parity: against the policy in PyTorch, on random observations.
        size_bytes: of the file.
    """

    path: Path
    form: str
    parity: Parity
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = {"file": str(self.path), "form": self.form, "size_bytes": self.size_bytes}
        return {**facts, "parity": self.parity.to_json()}


def export(source: RunFolder | Decision, to: str, out: Path | None = None) -> ExportResult:
    """Write a policy in another form and measure how it compares.

    Args:
        source: a finished run, whose parity.json then tells the comparison as well; or a decision function.
        to: name of the form, e.g. `onnx`, `torch-export`.
        out: file to write; RUN/result/policy.SUFFIX when None.

    Raises:
        GalleyError: `name-unknown`, `file-exists`, `package-missing`, `model-unsupported` for what cannot be exported,
            `run-unfinished`, `usage` for a decision function without `out`, `disk-full`.
    """
    form = registry.get(to)
    decision = _decision_of(source)
    if out is None:
        if isinstance(source, Decision):
            raise GalleyError("usage", "an export of a decision function needs a file to write", hint="give out=PATH")
        out = source.result / f"policy{form.suffix}"
    if out.exists():
        raise GalleyError("file-exists", f"{out} exists", hint="choose another file, or remove it")
    whole = Whole(decision)
    aside = out.with_name(f".{os.getpid()}.partial.{out.name}")
    with disk_full_is_an_error(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            form.write(whole, aside)
            parity = _compare(whole, form, aside)
            aside.replace(out)
        finally:
            aside.unlink(missing_ok=True)
    if isinstance(source, RunFolder):
        note_parity(source, to, parity)
    return ExportResult(out, to, parity, out.stat().st_size)


def _decision_of(source: RunFolder | Decision) -> Decision:
    if isinstance(source, Decision):
        return source
    if has_policy(source.result):
        return load_policy(source.result)
    if source.status() == "done":
        raise GalleyError(
            "model-unsupported",
            f"{source.name} is no agent: only policies are exported",
            hint="language models lie in RUN/result in hub layout, which other programs read as it is",
        )
    raise GalleyError(
        "run-unfinished", f"run {source.name} has no policy yet", hint=f"galley resume {source.name} finishes it"
    )


def _compare(whole: Whole, form: Form, path: Path) -> Parity:
    """On several rows and on one, since the batch axis must be free."""
    runner = form.open(path)
    differences = []
    for rows in (_ROWS, 1):
        inputs = whole.examples(rows, _SEED + rows)
        with torch.inference_mode():
            right = whole(*(torch.from_numpy(part) for part in inputs.values())).numpy()
        found = runner(inputs)
        if found.shape != right.shape or found.dtype != right.dtype:
            raise GalleyError(
                "internal", f"{path.name} gives {found.dtype} {found.shape}, not {right.dtype} {right.shape}"
            )
        difference = np.abs(found.astype(np.float64) - right.astype(np.float64))
        differences.append(difference.reshape(rows, -1).max(axis=1))
    largest = np.concatenate(differences)
    return Parity(float(largest.max()), float((largest <= _TOLERANCE).mean()))
