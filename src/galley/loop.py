"""The one training loop: every method, on every engine, from the first step to the last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from galley import checkpoint
from galley.base import GalleyError
from galley.data.order import step_rows
from galley.data.packing import split_rows
from galley.engines.base import Engine, OutOfMemoryError, StepResult
from galley.engines.schedule import learning_rate
from galley.guard import Guard
from galley.plan.types import Plan
from galley.runs import Checkpoint, Checkpoints
from galley.runs.journal import Journal

if TYPE_CHECKING:
    from galley.data.samples import Samples
    from galley.methods.base import Method

Stopped = Literal["done", "minutes", "interrupted"]

SECONDS_BETWEEN_CHECKPOINTS = 120.0


@dataclass
class Position:
    """How far a training is. The data order is a pure function of the step, so there is no cursor to lose."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float = float("inf")
    best_step: int = 0
    evaluated_step: int = 0
    max_rows: int = 0
    max_tokens: int = 0


@dataclass
class Training:
    """A plan at work.

    Args:
        plan: decides everything that happens here.
        method, model, engine: how to learn, what, and where. The engine is set up.
        train, held_out: encoded rows.
        journal: takes metrics and events; its folder takes checkpoints.
        keep: recent checkpoints that stay.
        should_stop: asked after every step; true saves and stops (Ctrl-C).
    """

    plan: Plan
    method: Method
    model: Any
    engine: Engine
    train: Samples
    held_out: Samples | None
    journal: Journal
    keep: int = 2
    should_stop: Callable[[], bool] = lambda: False
    at: Position = field(default_factory=Position)
    guard: Guard = field(default_factory=Guard)

    def run(self) -> Stopped:
        """Train to the plan's last step, to its time limit, or until interrupted; the newest state is then saved.

        Raises:
            GalleyError: `loss-not-finite`, `out-of-memory`, `adapter-targets`, `disk-full`.
        """
        self.loss = partial(self.method.loss, self.model)
        self.at.max_rows = self.plan.batch.micro_batch_rows
        self.at.max_tokens = self.plan.batch.micro_batch_tokens
        self._resume()
        self.saved_at, self.saved_step = time.monotonic(), -1
        left = None if self.plan.minutes is None else self.plan.minutes * 60 - self.at.seconds
        self.journal.observer.phase("train", total=self.plan.steps, done=self.at.step, seconds=left)
        while not (stopped := self._why_stop()):
            self._take_step()
            if self.at.step % self.plan.evaluate_every == 0:
                self._evaluate()
            if self._checkpoint_is_due():
                self._save()
        if stopped != "interrupted":
            self._evaluate()
        self._save()
        return stopped

    def _why_stop(self) -> Stopped | None:
        if self.at.step >= self.plan.steps:
            return "done"
        if self.plan.minutes is not None and self.at.seconds >= self.plan.minutes * 60:
            return "minutes"
        return "interrupted" if self.should_stop() else None

    def _take_step(self) -> None:
        started = time.monotonic()
        rate = self._learning_rate()
        rows = step_rows(
            self.at.step, num_rows=len(self.train), global_batch=self.plan.batch.global_batch_rows, seed=self.plan.seed
        )
        result = None
        while result is None:
            try:
                result = self.engine.step(self.loss, self._batches(self.train, rows), rate)
            except OutOfMemoryError as error:
                self._halve_micro_batch(error)
        seconds = time.monotonic() - started
        self.at.step += 1
        self.at.tokens += result.num_tokens
        self.at.seconds += seconds
        for kind, message in self.guard.look(self.at.step, result, adapter=self.plan.adapter is not None):
            self.journal.note(kind, message)
        self._record(result, rate, seconds)

    def _learning_rate(self) -> float:
        """Of the next step. Under a time limit the schedule ends with the time, if that comes first."""
        step = self.at.step
        if self.plan.minutes is not None:
            step = max(step, int(self.at.seconds / (self.plan.minutes * 60) * self.plan.steps))
        return learning_rate(min(step, self.plan.steps - 1), self.plan.steps, self.plan.optimizer)

    def _batches(self, samples: Samples, rows: Iterable[int]) -> list[Any]:
        parts = split_rows(samples.lengths, list(rows), max_rows=self.at.max_rows, max_tokens=self.at.max_tokens)
        return [self.method.batch(samples, part) for part in parts]

    def _halve_micro_batch(self, error: OutOfMemoryError) -> None:
        """The same rows in smaller pieces: the global batch, and so the update, stay what they were."""
        if self.at.max_rows == 1:
            raise GalleyError(
                "out-of-memory",
                f"memory ran out on a single row of up to {self.plan.batch.max_length_tokens} tokens ({error})",
                hint="set override.max_length lower, override.checkpointing: full, or override.tuning: qlora",
            ) from None
        self.at.max_rows = max(1, min(self.at.max_rows, self.plan.batch.global_batch_rows) // 2)
        self.at.max_tokens = max(16, self.at.max_tokens // 2)
        sizes = f"{self.at.max_rows} rows and {self.at.max_tokens} tokens"
        self.journal.note(
            "out-of-memory", f"memory ran out: at most {sizes} are computed at once; the global batch stays"
        )

    def _evaluate(self) -> None:
        """Held-out loss, always over the same rows; a new lowest one is saved and pinned as best."""
        if self.held_out is None or len(self.held_out) == 0 or self.at.evaluated_step == self.at.step:
            return
        self.at.evaluated_step = self.at.step
        rows = range(min(len(self.held_out), self.plan.evaluate_rows))
        result = self.engine.evaluate(self.loss, self._batches(self.held_out, rows))
        facts = {"held_out_loss": result.loss} | {f"held_out_{name}": v for name, v in result.metrics.items()}
        self._log(facts)
        if result.loss < self.at.best_loss:
            self.at.best_loss, self.at.best_step = result.loss, self.at.step
            self._save(best=True)

    def _record(self, result: StepResult, rate: float, seconds: float) -> None:
        facts = {
            "loss": result.loss,
            "learning_rate": rate,
            "grad_norm": result.grad_norm,
            f"{'rows' if self.model.tokenizer is None else 'tokens'}_per_second": result.num_tokens / seconds,
            "memory_bytes": self.engine.peak_memory(),
            **result.metrics,
        }
        self._log({"rows": result.num_rows, **facts}, done=1)

    def _checkpoint_is_due(self) -> bool:
        if self.plan.checkpoint_every:
            return self.at.step % self.plan.checkpoint_every == 0
        return time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS

    def _log(self, facts: dict[str, float], done: int = 0) -> None:
        at = self.at
        self.journal.log({"step": at.step, "tokens": at.tokens, "seconds": at.seconds}, facts, done=done)

    @property
    def _checkpoints(self) -> Checkpoints:
        return self.journal.folder.checkpoints

    def _save(self, *, best: bool = False) -> None:
        if self.saved_step == self.at.step and not best:
            return
        if not self.engine.is_finite():
            raise GalleyError(
                "loss-not-finite",
                f"the weights are no longer numbers at step {self.at.step}; they are not saved",
                hint="lower optimizer.learning_rate; earlier checkpoints and the best one are intact",
            )
        state = {"position": asdict(self.at), "guard": asdict(self.guard), "engine": self.engine.state()}
        self._checkpoints.save(self.at.step, partial(checkpoint.save, state=state), keep=self.keep, best=best)
        self.saved_at, self.saved_step = time.monotonic(), self.at.step

    def _resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one; later metrics are cut, to be written again."""
        found = self._checkpoints.recover(self.journal.note)
        if found is not None:
            self._restore(found)
            self.journal.note("resumed", f"continues after step {self.at.step} of {self.plan.steps}")
        self.journal.begin(self.at.step)

    def _restore(self, found: Checkpoint) -> None:
        state = checkpoint.load(found.path)
        self.at, self.guard = Position(**state["position"]), Guard(**state["guard"])
        self.engine.load_state(state["engine"])

    def load_best(self) -> bool:
        """Put the weights with the lowest held-out loss in place; false when the newest ones are those."""
        best = self._checkpoints.best()
        if best is None or self.at.best_step in (0, self.at.step):
            return False
        self.journal.note(
            "best", f"step {self.at.best_step} is the result: its held-out loss {self.at.best_loss:.4g} is lowest"
        )
        self._restore(best)
        return True
