"""Random actions are uniform among what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from galley.data.environments.layout import action_layout
from galley.data.environments.samples import random_actions

pytestmark = pytest.mark.unit

ROWS = 6000


def drawn(space: spaces.Space[Any], masks: list[bool] | None = None) -> np.ndarray[Any, Any]:
    allowed = None if masks is None else np.tile(masks, (ROWS, 1))
    return random_actions(action_layout(space), ROWS, np.random.default_rng(0), allowed)


def test_each_allowed_choice_is_as_likely_as_the_others() -> None:
    free = drawn(spaces.Discrete(3, start=5))  # arrays count from 0
    assert free.shape == (ROWS,)
    np.testing.assert_allclose(np.bincount(free) / ROWS, [1 / 3] * 3, atol=0.03)
    masked = drawn(spaces.Discrete(4), [True, False, True, True])
    np.testing.assert_allclose(np.bincount(masked) / ROWS, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)


def test_masks_hold_for_each_part() -> None:
    actions = drawn(spaces.MultiDiscrete([2, 3]), [False, True, True, True, False])
    assert actions.shape == (ROWS, 2)
    assert set(actions[:, 0]) == {1}
    np.testing.assert_allclose(np.bincount(actions[:, 1]) / ROWS, [0.5, 0.5], atol=0.03)
    switches = drawn(spaces.MultiBinary(3))
    np.testing.assert_allclose(switches.mean(axis=0), [0.5] * 3, atol=0.03)


def test_numbers_fill_their_bounds_and_stay_inside() -> None:
    low, high = np.array([-2, -np.inf, 0.5], np.float32), np.array([4, np.inf, np.inf], np.float32)
    numbers = drawn(spaces.Box(low, high))
    assert numbers.dtype == np.float32
    np.testing.assert_allclose([numbers[:, 0].mean(), numbers[:, 0].std()], [1, 6 / 12**0.5], atol=0.08)
    np.testing.assert_allclose([numbers[:, 1].mean(), numbers[:, 1].std()], [0, 1], atol=0.05)
    assert numbers[:, 2].min() >= 0.5
