"""Verdicts: better only beyond chance, worse said plainly, best and worst rows in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from galley.data import Conversation, Labelled, Message
from galley.evaluate import Verdict
from galley.evaluate.comparing import Scored, best_and_worst, compare
from galley.evaluate.questions import Question
from galley.evaluate.scorers import SCORERS

pytestmark = pytest.mark.unit


def _rows(pairs: Sequence[tuple[float, float]]) -> list[Scored]:
    example = Conversation((Message("user", "q"), Message("assistant", "a")))
    return [Scored(Question(n, example), "b", "t", base, tuned) for n, (base, tuned) in enumerate(pairs)]


def _verdict(pairs: Sequence[tuple[float, float]], scorer: str = "exact") -> Verdict:
    return compare(_rows(pairs), scorer, SCORERS.get(scorer), baseline="the base model", notes=(), seconds=1.0)


def test_a_clear_gain_is_better() -> None:
    verdict = _verdict([(0, 1)] * 60 + [(0, 0)] * 40)
    assert (verdict.better, verdict.worse, verdict.n) == (True, False, 100)
    assert verdict.difference == pytest.approx(0.6)
    assert 0 < verdict.interval[0] < 0.6 < verdict.interval[1] < 1
    assert verdict.sentence.startswith(
        "The tuned model is better: exact match 0.600 against 0.000 of the base model on 100"
    )


def test_a_gain_that_may_be_chance_is_not_better() -> None:
    verdict = _verdict([(0, 1)] * 4 + [(1, 1)] * 50)
    assert verdict.p_value == pytest.approx(0.125)
    assert not verdict.better
    assert "is not better" in verdict.sentence
    assert "may be chance" in verdict.sentence


def test_a_loss_of_quality_is_worse() -> None:
    verdict = _verdict([(1, 0)] * 30 + [(1, 1)] * 50)
    assert (verdict.better, verdict.worse) == (False, True)
    assert "is worse" in verdict.sentence


def test_lower_losses_are_better() -> None:
    verdict = _verdict([(2.0 + n % 5, 1.0 + n % 3) for n in range(40)], "loss")
    assert verdict.better
    assert verdict.difference < 0
    assert verdict.interval[1] < 0
    assert verdict.p_value is None


def test_no_change_is_not_better_and_one_row_proves_nothing() -> None:
    assert "is not better" in _verdict([(1, 1), (0, 0)]).sentence
    single = _verdict([(0.2, 0.9)], "task")
    assert not single.better
    assert not single.worse


def test_means_of_losses_are_over_tokens() -> None:
    rows = _rows([(1.0, 1.0), (3.0, 2.0)])
    weighted = [
        Scored(r.question, r.base, r.tuned, r.base_score, r.tuned_score, w) for r, w in zip(rows, (30, 10), strict=True)
    ]
    verdict = compare(weighted, "loss", SCORERS.get("loss"), baseline="the base model", notes=(), seconds=0)
    assert (verdict.base, verdict.tuned) == (1.5, 1.25)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
def test_best_and_worst_never_overlap(count: int) -> None:
    rows = _rows([((n * 7) % 5 / 5, (n * 3) % 4 / 4) for n in range(count)])
    best, worst = best_and_worst(rows, SCORERS.get("task"))
    numbers = [row.question.row for row in (*best, *worst)]
    assert len(numbers) == len(set(numbers)) <= 10
    gains = [row.tuned_score - row.base_score for row in rows]
    assert best[0].tuned_score - best[0].base_score == max(gains)
    if worst:
        assert worst[0].tuned_score - worst[0].base_score == min(gains)


def test_best_by_loss_is_where_it_fell_most() -> None:
    best, worst = best_and_worst(_rows([(3, 1), (2, 2), (1, 2)]), SCORERS.get("loss"))
    assert ([row.question.row for row in best], [row.question.row for row in worst]) == ([0], [2])


def test_confusion_counts_every_row_once() -> None:
    rows = [
        Scored(Question(n, Labelled("x", label)), "a", found, 0, float(label == found))
        for n, (label, found) in enumerate([("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")])
    ]
    verdict = compare(rows, "accuracy", SCORERS.get("accuracy"), baseline="always 'a'", notes=(), seconds=0)
    assert verdict.confusion is not None
    assert verdict.confusion.labels == ("a", "b")
    assert verdict.confusion.counts == ((1, 1), (0, 2))
