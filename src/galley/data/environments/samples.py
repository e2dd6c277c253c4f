"""Random actions: to try an environment with, to explore, and to be compared with."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout

    Array = np.ndarray[Any, Any]


def random_actions(actions: ActionLayout, rows: int, random: np.random.Generator, masks: Array | None = None) -> Array:
    """Uniform actions among the allowed ones.

    Args:
        actions: layout; numbers without bounds are drawn from a standard normal distribution.
        rows: N.
        random: what is drawn from.
        masks: allowed choices, [N, M] bool; None when all are. Numbers have none.

    Returns:
        [N] int64 for one choice, else [N, A] int64 or float32.
    """
    if actions.kind == "box":
        low, high = np.asarray(actions.low), np.asarray(actions.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        numbers = random.standard_normal((rows, actions.size))
        inside = random.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), (rows, actions.size))
        return np.where(bounded, inside, np.clip(numbers, low, high)).astype(np.float32)
    if masks is None:
        choices = random.integers(0, actions.sizes, (rows, actions.size))
    else:
        scores = np.where(masks, random.random((rows, actions.num_choices)), -1.0)
        starts = np.cumsum((0, *actions.sizes))
        parts = [scores[:, start:stop].argmax(axis=1) for start, stop in pairwise(starts)]
        choices = np.stack(parts, axis=1)
    return choices[:, 0] if actions.kind == "discrete" else choices
