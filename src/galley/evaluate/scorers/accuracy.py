"""The predicted class is the row's class."""

from __future__ import annotations

from galley.data.examples import Example, Labelled
from galley.evaluate.scorers import Needs, Observed, TaskScorer


class Accuracy:
    """1 for the right class, else 0."""

    needs: Needs = "classes"
    metric = "accuracy, share of rows"
    higher_is_better = True

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """1 or 0."""
        return float(isinstance(example, Labelled) and observed.text == example.label)


SCORER = Accuracy()
