"""Ways to score a row, one file each. A new file with a `SCORER` is found by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from galley.base import Registry
from galley.data.dataset import Scorer as TaskScorer
from galley.data.examples import Example

Needs: TypeAlias = Literal["answers", "losses", "classes"]
"""What is measured of a model: answers to prompts, losses of given texts, or predicted classes."""


@dataclass(frozen=True)
class Observed:
    """What a model did on one row.

    Args:
        text: its answer, or the name of the class that it predicts.
        loss: mean of -log p over the learned tokens, in nats; 0 where answers are scored.
    """

    text: str = ""
    loss: float = 0.0


class Scorer(Protocol):
    """One way to score a row. A scorer file defines `SCORER = TheClass()`."""

    needs: Needs
    metric: str
    """What the number means, in words."""
    higher_is_better: bool

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """The row's score; between 0 and 1 unless it is a loss.

        Args:
            observed: what the model did.
            example: the row.
            task_scorer: the scorer that the data brings, if any.
        """


SCORERS: Registry[Scorer] = Registry("galley.evaluate.scorers", attribute="SCORER", kind="scorer")

__all__ = ["SCORERS", "Needs", "Observed", "Scorer", "TaskScorer"]
