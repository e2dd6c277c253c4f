"""What earlier trainings on this machine needed, against what was predicted: a correction for later plans.

One line of JSON for each training lies in the user's cache. The correction of a plan is the median of measured over
predicted of the trainings most like it; the more of them there are, and the closer they lie, the narrower its range.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from galley.base.cache import cache_folder
from galley.plan.types import Correction, Plan, PlanPart

_KEPT = 500
_NEWEST = 9
_LEAST_SPREAD = 0.05
"""Two trainings of one recipe differ by as much."""
_FORMULAS = 2
"""Raised when predictions change, since what was learned of other formulas says nothing about these."""
_USUAL = Correction()
_CALIBRATED = Correction(speed=(0.75, 1.0, 1.3))
"""Of a machine whose products and memory were measured."""
_WARMUP_STEPS = 2
_FEWEST_STEPS = 5


class Training(PlanPart):
    """A training that has ended.

    Args:
        machine: name of the hardware and its number of cores.
        device, tuning, precision, fast_path, checkpointing, family: as in its plan.
        parameters: of the model.
        tokens_per_second, memory_bytes: measured over predicted, the prediction without any correction.
        measured_on: day of the calibration that the prediction rested on; empty without.
    """

    machine: str
    device: str
    tuning: str
    precision: str
    fast_path: bool
    checkpointing: str
    family: str
    parameters: int
    tokens_per_second: float
    memory_bytes: float
    formulas: int = _FORMULAS
    measured_on: str = ""


def machine_of(name: str, cores: int) -> str:
    """What a correction is good for."""
    return f"{name}, {cores} cores"


def measured(plan: Plan, family: str, parameters: int, metrics: Iterable[Mapping[str, Any]]) -> Training | None:
    """The line for a training, from its plan and its metrics; None where too little was measured.

    Args:
        plan: by which it was trained.
        family: of the model.
        parameters: of the model.
        metrics: lines of steps; `tokens_per_second` and `memory_bytes` are read.
    """
    steps = [line for line in metrics if "loss" in line and "tokens_per_second" in line]
    speeds = [float(line["tokens_per_second"]) for line in steps[_WARMUP_STEPS:]]
    memory = max((float(line.get("memory_bytes") or 0) for line in steps), default=0.0)
    predicted = plan.predicted
    likely_speed, likely_memory = predicted.tokens_per_second[1], predicted.memory_bytes[1]
    if len(steps) < _FEWEST_STEPS or not (memory and likely_speed and likely_memory) or statistics.median(speeds) <= 0:
        return None
    correction = predicted.correction
    return Training(
        machine=machine_of(plan.hardware.name, plan.hardware.cores),
        device=plan.device,
        tuning=plan.tuning,
        precision=plan.precision,
        fast_path=plan.fast_path,
        checkpointing=plan.checkpointing,
        family=family,
        parameters=parameters,
        tokens_per_second=statistics.median(speeds) / likely_speed * correction.speed[1],
        memory_bytes=memory / likely_memory * correction.memory[1],
        measured_on=plan.hardware.measured.on if plan.hardware.measured else "",
    )


def remember(training: Training, path: Path | None = None) -> None:
    """Add the line; the oldest are forgotten. A cache that cannot be written is no reason to fail."""
    path = path or _path()
    lines = [*_lines(path)[-_KEPT + 1 :], training.model_dump_json()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError:
        return


def recall(path: Path | None = None) -> tuple[Training, ...]:
    """All trainings that are remembered, oldest first; damaged lines are passed over."""
    found = []
    for line in _lines(path or _path()):
        try:
            found.append(Training.model_validate(json.loads(line)))
        except ValueError:
            continue
    return tuple(found)


def correction(trainings: Sequence[Training], like: Training) -> Correction:
    """The correction for a plan, from the newest trainings on the same machine that were computed in the same way.

    Those of the same model count alone where there are any; speed carries over to others, memory less so.

    Args:
        trainings: that are remembered.
        like: the plan as a training; its measurements are not read.
    """
    same = [training for training in trainings if _way(training) == _way(like)]
    model = [t for t in same if (t.family, t.parameters) == (like.family, like.parameters)]
    used = (model or same)[-_NEWEST:]
    usual = _CALIBRATED if like.measured_on else _USUAL
    if not used:
        return usual
    return Correction(
        trainings=len(used),
        speed=_range([training.tokens_per_second for training in used], usual.speed, bool(model)),
        memory=_range([training.memory_bytes for training in used], usual.memory, bool(model)),
    )


def _way(training: Training) -> tuple[object, ...]:
    adapter = training.tuning != "full"
    return (
        training.machine,
        training.device,
        adapter,
        training.precision,
        training.fast_path,
        training.checkpointing,
        training.formulas,
        training.measured_on,
    )


def _range(ratios: list[float], usual: tuple[float, float, float], same_model: bool) -> tuple[float, float, float]:
    """Low, likely and high factor: the usual range, shrunk with the number of trainings to how far they lie apart."""
    likely = statistics.median(ratios)
    apart = statistics.pstdev(ratios) / likely
    weight = 1 / (1 + len(ratios)) if same_model else 0.75
    low, _, high = usual
    below = max(apart, (1 - low) * weight, _LEAST_SPREAD)
    above = max(apart, (high - 1) * weight, _LEAST_SPREAD)
    return likely * (1 - min(below, 0.9)), likely, likely * (1 + above)


def _path() -> Path:
    return cache_folder() / "trainings.jsonl"


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        return []
