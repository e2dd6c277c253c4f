"""The score that the task itself gives: generated tasks know what a right answer is."""

from __future__ import annotations

from galley.base import GalleyError
from galley.data.examples import Example
from galley.evaluate.scorers import Needs, Observed, TaskScorer


class Task:
    """What the data's own scorer says, between 0 and 1."""

    needs: Needs = "answers"
    metric = "the task's own score, mean from 0 to 1"
    higher_is_better = True

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """The task's score.

        Raises:
            GalleyError: `data-format` when the data brings no scorer.
        """
        if task_scorer is None:
            raise GalleyError(
                "data-format", "this data brings no scorer of its own", hint="evaluate.scorer: exact, contains or loss"
            )
        return task_scorer(observed.text, example)


SCORER = Task()
