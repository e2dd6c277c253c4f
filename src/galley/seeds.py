"""One recipe with several seeds: each a run of its own, some at once, and all of them seen together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from galley import job, recipe, runs
from galley.base import Exit, GalleyError, Observer, SilentObserver
from galley.recipe import Recipe

if TYPE_CHECKING:
    from galley.evaluate.aggregate import Aggregate
    from galley.runs import RunFolder


@dataclass(frozen=True)
class SeedsResult:
    """What several seeds came to.

    Args:
        folder: holds seeds.json and seeds.png; the runs lie beside it.
        runs: in the order of their seeds.
        aggregate: of their verdicts; None when the recipe asks for none.
    """

    folder: Path
    runs: tuple[RunFolder, ...]
    aggregate: Aggregate | None


def train_seeds(asked: Recipe, *, runs_root: Path, observer: Observer | None = None) -> SeedsResult:
    """Train a recipe once for each seed, in processes of their own; finished ones are kept, unfinished ones continue.

    Args:
        asked: a recipe with `seeds`.
        runs_root: folder of all runs.
        observer: is told of progress, in seeds.

    Raises:
        GalleyError: `seed-failed` with what the first one said that failed; the others are trained all the same.
            `below-quality` when a seed is below what the recipe demands.
    """
    assert asked.seeds is not None
    observer = observer or SilentObserver()
    job.plan(asked.model_copy(update={"seeds": None}))  # what cannot work is said before anything starts
    stem = asked.name or f"{asked.task}-{Path(asked.data.path.rpartition(':')[2]).stem}-seeds"
    folder = runs_root / stem
    folder.mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    threads = asked.override.threads or max(1, cores // asked.seeds)
    at_once = max(1, cores // threads)
    observer.phase("train seeds", total=asked.seeds)
    wanted = list(_each(asked, stem, threads))
    with ThreadPoolExecutor(min(at_once, len(wanted))) as pool:
        outcomes = []
        for outcome in pool.map(lambda one: _train_one(one, folder, runs_root), wanted):
            observer.advance(1)
            outcomes.append(outcome)
    both = list(zip(wanted, outcomes, strict=True))
    failed = [(one, message) for one, (code, message) in both if code not in (Exit.DONE, Exit.BELOW_QUALITY)]
    if failed:
        one, message = failed[0]
        raise GalleyError(
            "seed-failed",
            f"{len(failed)} of {len(wanted)} seeds failed, first seed {one.seed}: {message}",
            hint="the same command trains those that are not finished",
        )
    result = _together(folder, stem, tuple(runs.find_run(runs_root, str(one.name)) for one in wanted))
    below = [one.seed for one, (code, _) in both if code == Exit.BELOW_QUALITY]
    if below:
        raise GalleyError("below-quality", f"below what the recipe demands: seeds {', '.join(map(str, below))}")
    return result


def _each(asked: Recipe, stem: str, threads: int) -> Iterator[Recipe]:
    """A recipe for each seed. Several trainings side by side, each with few threads, end sooner than one by one."""
    override = asked.override.model_copy(update={"threads": threads})
    for number in range(asked.seeds or 1):
        seed = asked.seed + number
        yield asked.model_copy(update={"seeds": None, "seed": seed, "override": override, "name": f"{stem}-{seed}"})


def _train_one(one: Recipe, folder: Path, root: Path) -> tuple[int, str]:
    """Train one seed: its exit code, and what it said when it failed."""
    path = root / str(one.name)
    if path.exists() and runs.RunFolder.open(path).status() == "done":
        return Exit.DONE, ""
    written = folder / f"seed-{one.seed}.yaml"
    written.write_text(recipe.dump(one), encoding="utf-8")
    command = [sys.executable, "-m", "galley", "train", str(written), "--runs", str(root), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip() or f"exit code {done.returncode}"


def _together(folder: Path, title: str, made: tuple[RunFolder, ...]) -> SeedsResult:
    from galley.evaluate.aggregate import aggregate, seeds_plot

    verdicts = [run.read_result("verdict.json") for run in made if (run.result / "verdict.json").exists()]
    result = aggregate(verdicts) if verdicts else None
    facts = {"runs": [run.name for run in made], "verdict": result.to_json() if result else None}
    runs.write_json(folder / "seeds.json", facts)
    seeds_plot(made, title, folder / "seeds.png")
    return SeedsResult(folder, made, result)
