"""The held-out loss: how surprising the rows' own answers or texts are to the model."""

from __future__ import annotations

from galley.data.examples import Example
from galley.evaluate.scorers import Needs, Observed, TaskScorer


class Loss:
    """Mean of -log p over the learned tokens."""

    needs: Needs = "losses"
    metric = "held-out loss, nats a token"
    higher_is_better = False

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """The loss itself."""
        return observed.loss


SCORER = Loss()
