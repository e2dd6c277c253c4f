"""The ways of splitting a training over devices that a recipe may pin."""

from __future__ import annotations

from collections.abc import Iterator

from galley.recipe.problems import Path, Problem, did_you_mean, show
from galley.recipe.schema import Recipe

AXES = ("tensor", "pipeline", "context", "expert", "data", "virtual", "zero", "shards", "fsdp")
"""As in `galley.plan.layout.Layout`; `fsdp: N` is short for `zero: 3, shards: N`."""
_MOST_DEVICES = 1_000_000
_PATH: Path = ("override", "parallel")


def parallel_problems(recipe: Recipe) -> Iterator[Problem]:
    """Unknown axes, sizes that cannot be, and axes that exclude each other whatever the model and the devices."""
    parallel = recipe.override.parallel
    for axis, size in parallel.items():
        if axis not in AXES:
            what = f"is no axis; expected {', '.join(AXES)}{did_you_mean(axis, AXES)}"
            yield Problem((*_PATH, axis), f"{show(axis)} {what}")
        elif axis == "zero" and not 0 <= size <= 3:
            yield Problem((*_PATH, axis), f"{show(size)} is not allowed; expected a stage of ZeRO, 0 to 3")
        elif axis != "zero" and not 1 <= size <= _MOST_DEVICES:
            what = f"{show(size)} is not allowed; expected a whole number of at least 1 and at most {_MOST_DEVICES:,}"
            yield Problem((*_PATH, axis), what)
    yield from _excluding(parallel)


def _excluding(parallel: dict[str, int]) -> Iterator[Problem]:
    fsdp, zero, shards = (parallel.get(axis) for axis in ("fsdp", "zero", "shards"))
    if fsdp is not None and zero not in (None, 3):
        yield Problem((*_PATH, "zero"), f"{zero} contradicts fsdp: {fsdp}, which is zero: 3")
    if fsdp is not None and shards not in (None, fsdp):
        yield Problem((*_PATH, "shards"), f"{shards} contradicts fsdp: {fsdp}, which shares over {fsdp} devices")
    if zero == 0 and shards is not None and shards > 1:
        yield Problem((*_PATH, "shards"), f"{shards} contradicts zero: 0, with which nothing is shared")
    if parallel.get("pipeline") == 1 and parallel.get("virtual", 1) > 1:
        yield Problem((*_PATH, "virtual"), f"{parallel['virtual']} contradicts pipeline: 1; pieces are of its stages")
