"""Is it better, or is it chance? A paired bootstrap and McNemar's exact test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Float64Array = np.ndarray[Any, np.dtype[np.float64]]

RESAMPLES = 10_000
_CELLS_AT_ONCE = 2_000_000  # resampled rows held in memory at once
_SEED = 20_240_607  # fixed: the same answers always give the same interval


def paired_interval(
    differences: Sequence[float], weights: Sequence[float] | None = None, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of the weighted mean difference, by bootstrap over rows, bias-corrected and accelerated (BCa).

    Args:
        differences: score of the tuned model minus score of the base model, one for each row.
        weights: of the rows, for example their tokens where scores are means over tokens; equal when left out.
        confidence: probability that the interval covers the true difference.

    Source: Efron 1987, "Better bootstrap confidence intervals", https://doi.org/10.2307/2289144.
    """
    d_R = np.asarray(differences, dtype=np.float64)
    w_R = np.ones_like(d_R) if weights is None else np.asarray(weights, dtype=np.float64)
    observed = float((d_R * w_R).sum() / w_R.sum())
    if len(d_R) < 2 or np.ptp(d_R) == 0:
        return observed, observed
    means = np.sort(_resampled_means(d_R, w_R))
    # Ties count half: with few rows many resamples give the observed mean exactly.
    below = (np.searchsorted(means, observed, "left") + np.searchsorted(means, observed, "right")) / (2 * len(means))
    if not 0 < below < 1:
        return float(means[0]), float(means[-1])
    bias = NormalDist().inv_cdf(float(below))
    acceleration = _acceleration(d_R, w_R)
    low, high = ((1 - confidence) / 2, (1 + confidence) / 2)
    return tuple(float(np.quantile(means, _adjusted(level, bias, acceleration))) for level in (low, high))  # type: ignore[return-value]


def mcnemar_p(base: Sequence[float], tuned: Sequence[float]) -> float | None:
    """Two-sided p of McNemar's exact test, or None unless all scores are 0 or 1.

    Only rows that one model gets right and the other wrong count: by chance, each would win half of them.

    Source: McNemar 1947, https://doi.org/10.1007/BF02295996; the exact form is a binomial test.
    """
    if not {*base, *tuned} <= {0.0, 1.0}:
        return None
    lost = sum(b > t for b, t in zip(base, tuned, strict=True))
    won = sum(b < t for b, t in zip(base, tuned, strict=True))
    tail = sum(math.comb(lost + won, k) for k in range(min(lost, won) + 1))
    return min(1.0, float(2 * tail / 2 ** (lost + won)))


def _resampled_means(d_R: Float64Array, w_R: Float64Array) -> Float64Array:
    random = np.random.default_rng(_SEED)
    rows = len(d_R)
    at_once = max(1, _CELLS_AT_ONCE // rows)
    out = []
    for start in range(0, RESAMPLES, at_once):
        index = random.integers(rows, size=(min(at_once, RESAMPLES - start), rows))
        out.append((d_R * w_R)[index].sum(1) / w_R[index].sum(1))
    return np.concatenate(out)


def _acceleration(d_R: Float64Array, w_R: Float64Array) -> float:
    """Skewness of the jackknife: how fast the error of the mean changes with the mean."""
    left_out = ((d_R * w_R).sum() - d_R * w_R) / (w_R.sum() - w_R)
    centred = left_out.mean() - left_out
    spread = float((centred**2).sum())
    return float((centred**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0


def _adjusted(level: float, bias: float, acceleration: float) -> float:
    z = bias + NormalDist().inv_cdf(level)
    return NormalDist().cdf(bias + z / (1 - acceleration * z))
