"""The expected answer stands somewhere in the answer, apart from case, white space and punctuation at its ends."""

from __future__ import annotations

import re

from galley.data.examples import Example
from galley.evaluate.scorers import Needs, Observed, TaskScorer
from galley.evaluate.scorers._text import expected_text, normalised


class Contains:
    """1 when the expected answer occurs, as whole words, else 0."""

    needs: Needs = "answers"
    metric = "answers that contain the expected one, share"
    higher_is_better = True

    def score(self, observed: Observed, example: Example, task_scorer: TaskScorer | None) -> float:
        """1 or 0."""
        wanted = re.escape(normalised(expected_text(example)))
        # Words of scripts without spaces have no borders to ask for.
        before = r"(?<![^\W\u2e80-\U0003ffff])" if wanted[:1].isascii() else ""
        after = r"(?![^\W\u2e80-\U0003ffff])" if wanted[-1:].isascii() else ""
        return float(re.search(f"{before}{wanted}{after}", normalised(observed.text)) is not None)


SCORER = Contains()
