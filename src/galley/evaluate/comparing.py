"""From scores of two models on the same rows to a verdict in numbers and in a plain sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from galley.evaluate.questions import Question
from galley.evaluate.scorers import Scorer
from galley.evaluate.statistics import mcnemar_p, paired_interval
from galley.evaluate.verdict import Answer, Confusion, Verdict

SHOWN = 5
"""Best and worst answers that a verdict shows."""
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Scored:
    """One row, judged.

    Args:
        question: the row.
        base, tuned: texts of both models; empty where only losses are measured.
        base_score, tuned_score: their scores.
        weight: of the row in the mean.
    """

    question: Question
    base: str
    tuned: str
    base_score: float
    tuned_score: float
    weight: float = 1.0

    def as_answer(self) -> Answer:
        """For the verdict and answers.jsonl."""
        return Answer(
            row=self.question.row,
            prompt=self.question.prompt,
            expected=self.question.expected,
            base=self.base,
            tuned=self.tuned,
            base_score=self.base_score,
            tuned_score=self.tuned_score,
        )


def ranked(rows: Sequence[Scored], scorer: Scorer) -> list[Scored]:
    """From the row that gained most to the one that lost most; equal gains by the tuned model's score."""
    sign = 1.0 if scorer.higher_is_better else -1.0
    return sorted(
        rows, key=lambda row: (-sign * (row.tuned_score - row.base_score), -sign * row.tuned_score, row.question.row)
    )


def best_and_worst(rows: Sequence[Scored], scorer: Scorer) -> tuple[list[Scored], list[Scored]]:
    """At most five each, the extreme ones first; no row is both."""
    order = ranked(rows, scorer)
    count = min(SHOWN, len(order) // 2)
    return order[: max(count, 1)], order[len(order) - count :][::-1]


def compare(
    rows: Sequence[Scored], name: str, scorer: Scorer, *, baseline: str, notes: Sequence[str], seconds: float
) -> Verdict:
    """The verdict on these rows.

    Args:
        rows: at least one.
        name: of the scorer.
        scorer: gave the scores.
        baseline: what the base scores belong to, in words.
        notes: what a reader should know.
        seconds: how long judging took.
    """
    weights = [row.weight for row in rows]
    before, after = [row.base_score for row in rows], [row.tuned_score for row in rows]
    base, tuned = _mean(before, weights), _mean(after, weights)
    low, high = paired_interval([t - b for b, t in zip(before, after, strict=True)], weights)
    p_value = mcnemar_p(before, after)
    beyond_chance = len(rows) > 1 and (p_value is None or p_value < SIGNIFICANT)
    up, down = beyond_chance and low > 0, beyond_chance and high < 0
    better, worse = (up, down) if scorer.higher_is_better else (down, up)
    best, worst = best_and_worst(rows, scorer)
    return Verdict(
        scorer=name,
        metric=scorer.metric,
        higher_is_better=scorer.higher_is_better,
        baseline=baseline,
        base=base,
        tuned=tuned,
        difference=tuned - base,
        interval=(low, high),
        p_value=p_value,
        n=len(rows),
        better=better,
        worse=worse,
        sentence=_sentence(better, worse, base, tuned, (low, high), len(rows), baseline, scorer),
        best=tuple(row.as_answer() for row in best),
        worst=tuple(row.as_answer() for row in worst),
        confusion=_confusion(rows) if scorer.needs == "classes" else None,
        notes=tuple(notes),
        seconds=seconds,
    )


def _sentence(
    better: bool,
    worse: bool,
    base: float,
    tuned: float,
    interval: tuple[float, float],
    n: int,
    baseline: str,
    scorer: Scorer,
) -> str:
    digits = 3
    head = "better" if better else "worse" if worse else "not better"
    low, high = interval
    text = (
        f"The tuned model is {head}: {scorer.metric.partition(',')[0]} {tuned:.{digits}f} against {base:.{digits}f} of "
        f"{baseline} on {n} unseen rows (difference {tuned - base:+.{digits}f}, 95 % interval {low:+.{digits}f} to "
        f"{high:+.{digits}f})."
    )
    if not (better or worse):
        text += " This difference may be chance." if tuned != base else ""
    return text


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _confusion(rows: Sequence[Scored]) -> Confusion:
    labels = tuple(sorted({row.question.expected for row in rows} | {row.tuned for row in rows}))
    counts = Counter((row.question.expected, row.tuned) for row in rows)
    return Confusion(labels=labels, counts=tuple(tuple(counts[a, b] for b in labels) for a in labels))
