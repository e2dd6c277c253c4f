"""Random actions, to try an environment with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout

    Array = np.ndarray[Any, Any]


def sampled_actions(actions: ActionLayout, rows: int, random: np.random.Generator) -> Array:
    """Uniform actions, [rows] int64 or [rows, A]; numbers without bounds are drawn from -1 to 1."""
    if actions.kind == "discrete":
        return random.integers(0, actions.sizes[0], rows)
    if actions.kind == "box":
        low = np.where(np.isfinite(actions.low), actions.low, -1.0)
        high = np.where(np.isfinite(actions.high), actions.high, 1.0)
        return random.uniform(low, high, (rows, actions.size)).astype(np.float32)
    return random.integers(0, actions.sizes, (rows, actions.size))
