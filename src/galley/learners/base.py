"""The seam between the one loop and what learns: take a step, measure, give and take back the whole state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Position:
    """How far a training is. Where the data stands is a pure function of the step, or part of the learner's state.

    Args:
        step: optimiser steps done; environment steps where something acts.
        tokens: real tokens (or rows) learned from.
        seconds: spent in steps.
        best_score, best_step: of the best evaluation so far; more is better. The step is -1 before the first one.
        evaluated_step: when the last evaluation was; likewise.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_score: float = float("-inf")
    best_step: int = -1
    evaluated_step: int = -1


@dataclass(frozen=True)
class Took:
    """What one step came to.

    Args:
        steps: that the position moves by.
        tokens: learned from.
        facts: metrics of the step, as they are logged.
        notes: (kind, message) that a user should know.
    """

    steps: int
    tokens: int
    facts: Mapping[str, float]
    notes: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Evaluation:
    """How good the model is now.

    Args:
        score: to compare evaluations by; more is better.
        facts: metrics, as they are logged.
        reached: facts by the names of `budget.until`.
    """

    score: float
    facts: Mapping[str, float]
    reached: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    """One thing that learns."""

    score_name: str
    """What is evaluated, in words, e.g. `held-out loss`."""
    score_sign: float
    """`Evaluation.score` times this is the number that people know: -1 where less is better."""

    evaluates_first: bool
    """Whether it is measured, and so saved, before it has learned anything."""

    def step(self, at: Position) -> Took:
        """Learn a little.

        Raises:
            GalleyError: `loss-not-finite`, `out-of-memory`, `adapter-targets`, `environment-failed`.
        """

    def evaluate(self) -> Evaluation | None:
        """Measure on what was never learned from; None where there is nothing such."""

    def state(self) -> Mapping[str, Any]:
        """Everything that changes: tensors and plain values in nested mappings."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue bit-identically from `state()`."""

    def is_finite(self) -> bool:
        """Whether all trained weights are numbers."""
