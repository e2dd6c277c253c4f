"""Worlds that hide velocities, so that a policy needs memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Hidden(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Only some numbers of the observation are seen.

    Args:
        env: the world.
        kept: places of the numbers that are seen.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], kept: list[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        self.kept = kept
        self.observation_space = gymnasium.spaces.Box(space.low[kept], space.high[kept], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        """The numbers that are kept."""
        return observation[self.kept]


def cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole: position and angle."""
    return Hidden(gymnasium.make("CartPole-v1", disable_env_checker=True), [0, 2])


def pendulum() -> gymnasium.Env[Any, Any]:
    """Pendulum: sine and cosine of the angle."""
    return Hidden(gymnasium.make("Pendulum-v1", disable_env_checker=True), [0, 1])


def mountaincar_continuous() -> gymnasium.Env[Any, Any]:
    """MountainCarContinuous: position."""
    return Hidden(gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True), [0])
