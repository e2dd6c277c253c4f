"""Intervals and p-values against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from galley.evaluate.statistics import mcnemar_p, paired_interval

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rows", [12, 60, 200])
@pytest.mark.parametrize("kind", ["skewed", "binary", "normal"])
def test_the_interval_is_the_bca_interval_of_scipy(rows: int, kind: str) -> None:
    random = np.random.default_rng(rows)
    differences = {
        "skewed": random.exponential(size=rows) - 0.4,
        "binary": random.choice([-1.0, 0.0, 1.0], p=[0.1, 0.5, 0.4], size=rows),
        "normal": random.normal(0.1, 1, size=rows),
    }[kind]
    ours = paired_interval(differences.tolist())
    theirs = stats.bootstrap((differences,), np.mean, method="BCa", n_resamples=20_000, rng=1).confidence_interval
    spread = float(np.std(differences)) / rows**0.5
    assert abs(ours[0] - theirs.low) < 0.15 * spread
    assert abs(ours[1] - theirs.high) < 0.15 * spread


def test_weights_make_it_the_interval_of_a_ratio() -> None:
    random = np.random.default_rng(3)
    tokens = random.integers(1, 50, size=80)
    per_token = random.normal(0.2, 0.5, size=80)

    def ratio(values: np.ndarray, weights: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray((values * weights).sum(axis) / weights.sum(axis))

    ours = paired_interval(per_token.tolist(), tokens.tolist())
    theirs = stats.bootstrap(
        (per_token, tokens), ratio, paired=True, vectorized=True, method="BCa", n_resamples=20_000, rng=1
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(150):
        low, high = paired_interval(random.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=100).tolist())
        covered += low <= 0.2 <= high
    assert 0.88 <= covered / 150 <= 0.99


def test_equal_differences_leave_no_doubt_and_one_row_no_interval() -> None:
    assert paired_interval([0.5] * 7) == (0.5, 0.5)
    assert paired_interval([1.0]) == (1.0, 1.0)


def test_the_same_answers_give_the_same_interval() -> None:
    differences = [0.0, 1.0, 1.0, -1.0, 0.0, 1.0]
    assert paired_interval(differences) == paired_interval(differences)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_mcnemar_is_the_binomial_test_of_the_rows_that_differ(pairs: list[tuple[float, float]]) -> None:
    base, tuned = zip(*pairs, strict=True)
    lost, won = sum(b > t for b, t in pairs), sum(b < t for b, t in pairs)
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar_p(base, tuned) == pytest.approx(expected)


def test_mcnemar_is_for_right_and_wrong_only() -> None:
    assert mcnemar_p([0.0, 0.5], [1.0, 1.0]) is None
