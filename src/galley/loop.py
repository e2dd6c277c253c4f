"""The one training loop: everything that learns, from the first step to the last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Literal, Protocol

from galley import checkpoint
from galley.base import GalleyError
from galley.engines.group import ALONE, Group
from galley.learners.base import Evaluation, Learner, Position
from galley.runs import Checkpoint, Checkpoints
from galley.runs.journal import Journal

Stopped = Literal["done", "minutes", "until", "interrupted"]

SECONDS_BETWEEN_CHECKPOINTS = 120.0


class Schedule(Protocol):
    """What the loop reads of a plan."""

    @property
    def steps(self) -> int:
        """The last step."""

    @property
    def minutes(self) -> float | None:
        """Time limit."""

    @property
    def evaluate_every(self) -> int:
        """Steps between evaluations."""

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints; 0 leaves it to time."""

    @property
    def until(self) -> Mapping[str, float]:
        """Measures that end the training when an evaluation reaches all of them."""


@dataclass
class Training:
    """A plan at work.

    Args:
        plan: when to evaluate, save and stop.
        learner: what learns.
        journal: takes metrics and events; its folder takes checkpoints.
        keep: recent checkpoints that stay.
        should_stop: asked after every step; true saves and stops (Ctrl-C).
        group: processes that train together; they decide together, and the first one saves.
    """

    plan: Schedule
    learner: Learner
    journal: Journal
    keep: int = 2
    should_stop: Callable[[], bool] = lambda: False
    group: Group = ALONE
    at: Position = field(default_factory=Position)
    reached: bool = False

    def run(self) -> Stopped:
        """Train to the plan's last step, its time limit or its goal, or until interrupted; the newest state is saved.

        Raises:
            GalleyError: as the learner does; `disk-full`.
        """
        self._resume()
        self.saved_at, self.saved_step = time.monotonic(), -1
        left = None if self.plan.minutes is None else self.plan.minutes * 60 - self.at.seconds
        self.journal.observer.phase("train", total=self.plan.steps, done=self.at.step, seconds=left)
        if self.at.step == 0 and self.learner.evaluates_first:
            self._evaluate()
            self._save()
        while not (stopped := self._why_stop()):
            before = self.at.step
            self._take_step()
            if _passed(before, self.at.step, self.plan.evaluate_every):
                self._evaluate()
            if self.group.any(self._checkpoint_is_due(before)):
                self._save()
        if stopped != "interrupted":
            self._evaluate()
        self._save()
        return stopped

    def _why_stop(self) -> Stopped | None:
        if self.at.step >= self.plan.steps:
            return "done"
        if self.reached:
            return "until"
        if self.plan.minutes is not None and self.at.seconds >= self.plan.minutes * 60:
            return "minutes"
        return "interrupted" if self.group.any(self.should_stop()) else None

    def _take_step(self) -> None:
        started = time.monotonic()
        took = self.learner.step(self.at)
        self.at.step += took.steps
        self.at.tokens += took.tokens
        self.at.seconds += self._agreed(time.monotonic() - started)
        for kind, message in took.notes:
            self.journal.note(kind, message)
        self._log(took.facts, done=took.steps)

    def _agreed(self, seconds: float) -> float:
        """A time that all processes take for true, where the schedule or the end hangs on it."""
        return seconds if self.plan.minutes is None else self.group.sum([seconds])[0] / self.group.size

    def _evaluate(self) -> None:
        """A new best one is saved and pinned as best."""
        if self.at.evaluated_step == self.at.step:
            return
        result = self.learner.evaluate()
        if result is None:
            return
        self.at.evaluated_step = self.at.step
        self._log(result.facts)
        self.reached = _reached(self.plan.until, result)
        if result.score >= self.at.best_score:  # of equals the later one: it has learned more
            self.at.best_score, self.at.best_step = result.score, self.at.step
            self._save(best=True)

    def _checkpoint_is_due(self, before: int) -> bool:
        if self.plan.checkpoint_every:
            return _passed(before, self.at.step, self.plan.checkpoint_every)
        return time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS

    def _log(self, facts: Mapping[str, float], done: int = 0) -> None:
        at = self.at
        self.journal.log({"step": at.step, "tokens": at.tokens, "seconds": at.seconds}, facts, done=done)

    @property
    def _checkpoints(self) -> Checkpoints:
        return self.journal.folder.checkpoints

    def _save(self, *, best: bool = False) -> None:
        if self.saved_step == self.at.step and not best:
            return
        if self.group.any(not self.learner.is_finite()):
            raise GalleyError(
                "loss-not-finite",
                f"the weights are no longer numbers at step {self.at.step}; they are not saved",
                hint="lower the learning rate; earlier checkpoints and the best one are intact",
            )
        state = {"position": asdict(self.at), "reached": self.reached, "learner": self.learner.state()}
        if self.group.is_first:
            self._checkpoints.save(self.at.step, partial(checkpoint.save, state=state), keep=self.keep, best=best)
        self.group.wait()
        self.saved_at, self.saved_step = time.monotonic(), self.at.step

    def _resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one; later metrics are cut, to be written again."""
        found = self._checkpoints.recover(self.journal.note) if self.group.is_first else None
        self.group.wait()
        if not self.group.is_first:
            found = self._checkpoints.last()
        if found is not None:
            self._restore(found)
            self.journal.note("resumed", f"continues after step {self.at.step} of {self.plan.steps}")
        self.journal.begin(self.at.step)

    def _restore(self, found: Checkpoint) -> None:
        state = checkpoint.load(found.path)
        self.at, self.reached = Position(**state["position"]), state["reached"]
        self.learner.load_state(state["learner"])

    def load_best(self) -> bool:
        """Put the weights of the best evaluation in place; false when the newest ones are those."""
        best = self._checkpoints.best()
        if best is None or self.at.best_step in (-1, self.at.step):
            return False
        name, score = self.learner.score_name, self.learner.score_sign * self.at.best_score
        self.journal.note("best", f"step {self.at.best_step} is the result: its {name} {score:.4g} is the best")
        self._restore(best)
        return True


def _passed(before: int, now: int, every: int) -> bool:
    """Whether a multiple lies after `before` and not after `now`."""
    return now // every > before // every


def _reached(until: Mapping[str, float], result: Evaluation) -> bool:
    """Whether every measure is as good as asked; a loss is good when it is low."""
    if not until:
        return False
    return all(
        result.reached[name] <= wanted if name == "loss" else result.reached[name] >= wanted
        for name, wanted in until.items()
    )
