"""The answer is the expected one, apart from case, white space and closing punctuation."""

from __future__ import annotations

from galley.data.examples import Example
from galley.evaluate.scorers import Needs, Observed, TaskScorer
from galley.evaluate.scorers._text import expected_text, normalised


class Exact:
    """1 for the expected answer, else 0."""

    needs: Needs = "answers"
    metric = "exact match, share of answers"
    higher_is_better = True

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """1 or 0."""
        return float(normalised(observed.text) == normalised(expected_text(example)))


SCORER = Exact()
