"""A run from its name to its end: which one is continued, how a new one comes to be, and a status that stays true."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import recipe, runs
from galley.base import GalleyError
from galley.plan.checks import refuse_untrainable
from galley.recipe import Recipe

if TYPE_CHECKING:
    from galley.loop import Stopped, Training
    from galley.runs import RunFolder, Status

NO_LIMIT = 10**9
"""Steps of a plan that a time alone limits."""


def find_unfinished(asked: Recipe, root: Path, resume: str) -> RunFolder | None:
    """The run to continue, if any."""
    if resume == "never":
        return None
    if resume != "auto":
        return _same_recipe(_not_done(runs.find_run(root, resume)), asked)
    if asked.name is not None:
        path = root / asked.name
        if not path.exists():
            return None
        folder = _not_done(runs.RunFolder.open(path))
        if folder.recipe() != recipe.dump(asked) and folder.is_blank():
            folder.discard()  # a mistake was corrected before anything was learned
            return None
        return _same_recipe(folder, asked)
    text = recipe.dump(asked)
    open_runs = (f for f in reversed(runs.list_runs(root)) if f.status() in ("interrupted", "failed", "new"))
    return next((folder for folder in open_runs if folder.recipe() == text), None)


def _not_done(folder: RunFolder) -> RunFolder:
    if folder.status() == "done":
        more = "budget.steps=+100000" if folder.plan().get("task") == "control" else "budget.epochs=+1"
        hint = f"galley extend {folder.name} {more} trains it longer; else give another name"
        raise GalleyError("run-exists", f"the run {folder.name} is already finished", hint=hint)
    return folder


def _same_recipe(folder: RunFolder, asked: Recipe) -> RunFolder:
    if folder.recipe() != recipe.dump(asked):
        raise GalleyError(
            "run-exists",
            f"the run {folder.name} was started with another recipe than this one",
            hint=f"galley resume {folder.name} continues it as it was; for this recipe give another name",
        )
    return folder


def create(asked: Recipe, planned: Mapping[str, Any], proof: Mapping[str, Any], root: Path, resume: str) -> RunFolder:
    """A new run. Another process may take the name meanwhile.

    Args:
        asked: its recipe.
        planned: content of plan.json.
        proof: content of manifest.json.
        root: folder of all runs.
        resume: as for `train`.

    Raises:
        GalleyError: `run-exists`, `run-folder`, `disk-full`; `plan-contradiction` for a device that no engine runs on.
    """
    refuse_untrainable(str(planned.get("device", "cpu")))
    stem = f"{asked.task}-{Path(asked.data.path.rpartition(':')[2]).stem}"
    text = recipe.dump(asked)
    while True:
        name = asked.name or runs.free_name(root, stem)
        try:
            return runs.RunFolder.create(root, name, recipe=text, plan=planned, manifest=proof)
        except GalleyError as error:
            if error.code != "run-exists" or (asked.name is not None and resume != "auto"):
                raise
        if asked.name is not None:  # its lock then tells who trains it
            return _same_recipe(runs.RunFolder.open(root / name), asked)


@contextmanager
def status(folder: RunFolder) -> Iterator[None]:
    """Keep the run's status true however the job ends."""
    folder.set_status("running")
    folder.event("started", f"by process {os.getpid()}")
    try:
        yield
    except GalleyError as error:
        ends: dict[str, Status] = {"interrupted": "interrupted", "below-quality": "done"}
        folder.set_status(ends.get(error.code, "failed"), error.message)
        raise
    except KeyboardInterrupt:
        folder.set_status("interrupted")
        raise
    except BaseException as error:
        folder.set_status("failed", f"{type(error).__name__}: {error}")
        raise
    folder.set_status("done")
    folder.event("done", f"the result is in {folder.result.name}/")


def say_stopped(stopped: Stopped, work: Training) -> None:
    """Say why the training stopped before its last step.

    Raises:
        GalleyError: `interrupted`: everything is saved, and the job ends here.
    """
    steps = work.plan.steps
    at = f"{work.at.step}" if steps >= NO_LIMIT else f"{work.at.step} of {steps}"
    if stopped == "interrupted":
        run = work.journal.folder.name
        raise GalleyError("interrupted", f"stopped and saved after step {at}", hint=f"galley resume {run}")
    if stopped == "minutes":
        work.journal.note("time-limit", f"{work.plan.minutes:g} minutes are over after step {at}")
    if stopped == "until":
        goal = ", ".join(f"{name} {wanted:g}" for name, wanted in work.plan.until.items())
        work.journal.note("goal-reached", f"{goal} is reached after step {at}")
