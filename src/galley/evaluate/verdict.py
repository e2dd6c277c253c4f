"""The verdict on a run: pure data, stored as result/verdict.json."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(_Part):
    """How both models did on one held-out row.

    Args:
        row: number of the row among the held-out ones, from 0.
        prompt: what was asked, as text.
        expected: the answer of the data.
        base, tuned: what the models answered; empty where only a loss was measured.
        base_score, tuned_score: what that is worth.
    """

    row: int
    prompt: str
    expected: str
    base: str
    tuned: str
    base_score: float
    tuned_score: float


class Confusion(_Part):
    """Predictions of a classifier: `counts[i][j]` rows of class i were taken for class j."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Verdict(_Part):
    """A paired comparison of base and tuned model on the same held-out rows.

    Args:
        scorer: name of the scorer.
        metric: what its numbers mean, in words.
        higher_is_better: whether more is better.
        baseline: what the tuned model is compared with.
        base, tuned: mean over the rows (of losses: over their tokens).
        difference: tuned - base.
        interval: 95 % interval of the difference, from a paired bootstrap over rows.
        p_value: exact McNemar test; only where every score is 0 or 1.
        n: rows.
        better: whether the tuned model is better beyond chance.
        worse: whether it is worse beyond chance.
        sentence: all of this in a sentence.
        best, worst: at most five rows each, by change of score.
        confusion: only for classifiers.
        notes: what a reader should know, such as rows that could not be asked.
        seconds: how long judging took.
    """

    scorer: str
    metric: str
    higher_is_better: bool
    baseline: str
    base: float
    tuned: float
    difference: float
    interval: tuple[float, float]
    p_value: float | None
    n: int
    better: bool
    worse: bool
    sentence: str
    best: tuple[Answer, ...] = ()
    worst: tuple[Answer, ...] = ()
    confusion: Confusion | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
