"""CartPole without velocities: one observation does not say where the pole falls."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Blind(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Position and angle alone."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return observation[[0, 2]] * np.array([1, 10], np.float32)


def blind() -> gymnasium.Env[Any, Any]:
    return Blind(gymnasium.make("CartPole-v1", disable_env_checker=True))
