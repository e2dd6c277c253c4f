"""Learning from rows: the next ones in order, cut into micro-batches, one optimiser step on the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.order import step_rows
from galley.data.packing import split_rows
from galley.engines.base import Engine, OutOfMemoryError, StepResult
from galley.engines.group import ALONE, Group
from galley.engines.schedule import learning_rate
from galley.guard import Guard
from galley.learners.base import Evaluation, Position, Took
from galley.plan.types import Plan

if TYPE_CHECKING:
    from galley.data.samples import Samples
    from galley.methods.base import Method


class RowLearner:
    """A method, a model and an engine over encoded rows.

    Args:
        plan: decides batches, schedule and rates.
        method, model, engine: how to learn, what, and where. The engine is set up.
        train, held_out: encoded rows.
        group: processes that share each step: its micro-batches are dealt out to them.
    """

    score_name = "held-out loss"
    score_sign = -1.0
    evaluates_first = False

    def __init__(
        self,
        plan: Plan,
        method: Method,
        model: Any,
        engine: Engine,
        train: Samples,
        held_out: Samples | None,
        *,
        group: Group = ALONE,
    ) -> None:
        self.plan, self.method, self.model, self.engine = plan, method, model, engine
        self.group = group
        self.train, self.held_out = train, held_out
        self.loss = partial(method.loss, model)
        self.guard = Guard()
        self.max_rows = plan.batch.micro_batch_rows
        self.max_tokens = plan.batch.micro_batch_tokens

    def step(self, at: Position) -> Took:
        """One optimiser step."""
        started = time.monotonic()
        rate = self._learning_rate(at)
        rows = step_rows(
            at.step, num_rows=len(self.train), global_batch=self.plan.batch.global_batch_rows, seed=self.plan.seed
        )
        notes: list[tuple[str, str]] = []
        result = None
        while result is None:
            try:
                result = self.engine.step(self.loss, self._batches(self.train, rows), rate)
            except OutOfMemoryError as error:
                notes.append(self._halve_micro_batch(error))
        seconds = time.monotonic() - started
        notes.extend(self.guard.look(at.step + 1, result, adapter=self.plan.adapter is not None))
        return Took(1, result.num_tokens, self._facts(result, rate, seconds), notes)

    def _facts(self, result: StepResult, rate: float, seconds: float) -> dict[str, float]:
        return {
            "rows": result.num_rows,
            "loss": result.loss,
            "learning_rate": rate,
            "grad_norm": result.grad_norm,
            f"{'rows' if self.model.tokenizer is None else 'tokens'}_per_second": result.num_tokens / seconds,
            "memory_bytes": self.engine.peak_memory(),
            **result.metrics,
        }

    def _learning_rate(self, at: Position) -> float:
        """Of the next step. Under a time limit the schedule ends with the time, if that comes first."""
        step = at.step
        if self.plan.minutes is not None:
            step = max(step, int(at.seconds / (self.plan.minutes * 60) * self.plan.steps))
        return learning_rate(min(step, self.plan.steps - 1), self.plan.steps, self.plan.optimizer)

    def _batches(self, samples: Samples, rows: Iterable[int]) -> list[Any]:
        """This process's micro-batches. All processes make the same list, and take turns in it."""
        chosen = list(rows)
        most = min(self.max_rows, -(-len(chosen) // self.group.size))
        parts = split_rows(samples.lengths, chosen, max_rows=most, max_tokens=self.max_tokens)
        return [self.method.batch(samples, part) for part in parts[self.group.rank :: self.group.size]]

    def _halve_micro_batch(self, error: OutOfMemoryError) -> tuple[str, str]:
        """The same rows in smaller pieces: the global batch, and so the update, stay what they were."""
        if self.max_rows == 1:
            raise GalleyError(
                "out-of-memory",
                f"memory ran out on a single row of up to {self.plan.batch.max_length_tokens} tokens ({error})",
                hint="set override.max_length lower, override.checkpointing: full, or override.tuning: qlora",
            ) from None
        self.max_rows = max(1, min(self.max_rows, self.plan.batch.global_batch_rows) // 2)
        self.max_tokens = max(16, self.max_tokens // 2)
        sizes = f"{self.max_rows} rows and {self.max_tokens} tokens"
        return "out-of-memory", f"memory ran out: at most {sizes} are computed at once; the global batch stays"

    def evaluate(self) -> Evaluation | None:
        """Held-out loss, always over the same rows."""
        if self.held_out is None or len(self.held_out) == 0:
            return None
        rows = range(min(len(self.held_out), self.plan.evaluate_rows))
        result = self.engine.evaluate(self.loss, self._batches(self.held_out, rows))
        facts = {"held_out_loss": result.loss} | {f"held_out_{name}": v for name, v in result.metrics.items()}
        return Evaluation(-result.loss, facts, {"loss": result.loss, **result.metrics})

    def state(self) -> dict[str, Any]:
        """Of the engine, the guard, and the sizes that memory allowed."""
        sizes = {"max_rows": self.max_rows, "max_tokens": self.max_tokens}
        return {"guard": asdict(self.guard), "engine": self.engine.state(), "sizes": sizes}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put everything back."""
        self.guard = Guard(**state["guard"])
        self.max_rows, self.max_tokens = state["sizes"]["max_rows"], state["sizes"]["max_tokens"]
        self.engine.load_state(state["engine"])

    def is_finite(self) -> bool:
        """Whether all trained weights are numbers."""
        return self.engine.is_finite()
