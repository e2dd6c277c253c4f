"""Settings that contradict each other, checked over the recipe as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from galley.base import parse_bytes
from galley.recipe.names import unknown_names
from galley.recipe.parallel import parallel_problems
from galley.recipe.problems import Path, Problem, dotted, show
from galley.recipe.schema import Recipe
from galley.recipe.suitable import unsuitable

_MOST_BYTES = 1 << 60
_MOST_PATH, _MOST_NAME = 4096, 255
"""Bytes of a path, and of one name in it, that file systems take."""
_DEVICE = re.compile(r"cpu|mps|cuda(:\d{1,4})?", re.ASCII)


def contradictions(recipe: Recipe) -> Iterator[Problem]:
    """Every pair of settings that cannot both hold, and every setting that holds nowhere."""
    yield from _references(recipe)
    yield from _budget(recipe)
    yield from _evaluate(recipe)
    yield from _optimizer(recipe)
    yield from _override(recipe)
    yield from unknown_names(recipe)
    yield from unsuitable(recipe)
    if recipe.data.split is not None and not recipe.data.path.startswith("hub:"):
        yield Problem(("data", "split"), f"only hub datasets have splits, and data is {show(recipe.data.path)}")


def _references(recipe: Recipe) -> Iterator[Problem]:
    """Words that name files, models or data; more may be wrong with them, which only looking at the disk tells."""
    held_out = recipe.evaluate.held_out
    given = {("model",): recipe.model, ("data", "path"): recipe.data.path, ("evaluate", "held_out"): held_out}
    for path, words in given.items():
        if not isinstance(words, str):
            continue
        size = len(words.encode("utf-8", "replace"))
        longest = max(len(name.encode("utf-8", "replace")) for name in words.split("/"))
        if not words.strip():
            if words == "" and path == ("model",) and "model" not in recipe.model_fields_set:
                continue  # left out, which its task allows or `schema_problems` reports
            yield Problem(path, f"{show(words)} is not allowed; expected a path or a name")
        elif "\0" in words:
            yield Problem(path, f"{show(words)} is not allowed; a path holds no NUL character")
        elif size > _MOST_PATH or longest > _MOST_NAME:
            what = f"{show(words)} is not allowed; {size:,} bytes are too long for a path (rows are read from files)"
            yield Problem(path, what)


def _budget(recipe: Recipe) -> Iterator[Problem]:
    budget = recipe.budget
    given = [key for key in ("epochs", "steps", "tokens") if getattr(budget, key) is not None]
    if len(given) > 1:
        yield Problem(("budget", given[1]), f"contradicts budget.{given[0]}; keep one of {', '.join(given)}")
    if budget.memory is not None:
        try:
            size = parse_bytes(budget.memory)
        except (ValueError, OverflowError):
            size = -1
        if not 0 < size <= _MOST_BYTES:
            above = " above 0" if size == 0 else ""
            what = f"{show(budget.memory)} is not allowed; expected a size{above} such as 8GiB"
            yield Problem(("budget", "memory"), what)


def _evaluate(recipe: Recipe) -> Iterator[Problem]:
    evaluate = recipe.evaluate
    share = evaluate.held_out
    if not isinstance(share, str) and not 0 <= share <= 0.5:
        advice = "; a number of rows cannot be given, only a share" if share > 1 else ""
        yield Problem(("evaluate", "held_out"), f"{share:g} is not allowed; expected a share from 0 to 0.5{advice}")
    if evaluate.demand is not None and not evaluate.verdict:
        yield _against(("evaluate", "demand"), evaluate.demand, ("evaluate", "verdict"), "false")
    if share == 0:
        if evaluate.demand is not None:
            yield _against(("evaluate", "demand"), evaluate.demand, ("evaluate", "held_out"), "0")
        if evaluate.every is not None:
            yield _against(("evaluate", "every"), str(evaluate.every), ("evaluate", "held_out"), "0")


def _optimizer(recipe: Recipe) -> Iterator[Problem]:
    optimizer = recipe.optimizer
    if optimizer.decay is not None and optimizer.schedule != "wsd":
        told = f"optimizer.schedule is {optimizer.schedule}" if optimizer.schedule else "none is given"
        yield Problem(("optimizer", "decay"), f"only the wsd schedule decays at its end, and {told}")
    steps = recipe.budget.steps
    if optimizer.warmup is not None and optimizer.warmup >= 1:
        if not float(optimizer.warmup).is_integer():
            what = f"{optimizer.warmup:g} is not allowed; expected a share below 1 or a whole number of steps"
            yield Problem(("optimizer", "warmup"), what)
        elif steps is not None and optimizer.warmup >= steps:
            yield _against(("optimizer", "warmup"), f"{optimizer.warmup:g} steps", ("budget", "steps"), str(steps))
    if optimizer.betas is not None and not all(0 <= beta < 1 for beta in optimizer.betas):
        shown = ", ".join(f"{beta:g}" for beta in optimizer.betas)
        yield Problem(("optimizer", "betas"), f"[{shown}] is not allowed; expected 2 numbers from 0 to below 1")


def _override(recipe: Recipe) -> Iterator[Problem]:
    override = recipe.override
    if override.device is not None and not _DEVICE.fullmatch(override.device):
        what = f"{show(override.device)} is not allowed; expected cpu, cuda, cuda:N or mps"
        yield Problem(("override", "device"), what)
    targets = [override.targets] if isinstance(override.targets, str) else override.targets
    if targets is not None and not (targets and all(name.strip() for name in targets)):
        what = f"{show(override.targets)} is not allowed; expected all-linear or names of modules"
        yield Problem(("override", "targets"), what)
    if override.tuning == "full":
        for key in ("rank", "alpha", "dropout", "targets"):
            value = getattr(override, key)
            if value is not None:
                yield _against(("override", key), show(value), ("override", "tuning"), "full")
    small, large = override.micro_batch, override.global_batch
    if small is not None and large is not None and small > large:
        yield _against(("override", "micro_batch"), str(small), ("override", "global_batch"), str(large))
    yield from parallel_problems(recipe)


def _against(path: Path, value: str, other: Path, other_value: str) -> Problem:
    return Problem(path, f"{value} contradicts {dotted(other)}: {other_value}")
