"""Show the last observations together, oldest first, so that speeds can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from galley.base import GalleyError
from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class Config(WrapperConfig):
    """Settings of `frame-stack`."""

    frames: int = Field(4, ge=2, le=64, description="observations shown together, with the newest last")


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The last K observations as one: [D] becomes [K*D], [H, W] becomes [K, H, W], [H, W, C] becomes [H, W, K*C].

    At the beginning of an episode the first observation stands K times.

    Args:
        env: with a box as observation.
        frames: K.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], frames: int) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or not 1 <= len(space.shape) <= 3:
            raise GalleyError(
                "environment-unsupported",
                f"data.options.wrappers.frame-stack: observations of the space {space} cannot be stacked",
                hint="vectors and images can",
            )
        self._frames = frames
        self._plane = len(space.shape) == 2
        low, high = self._joined([space.low] * frames), self._joined([space.high] * frames)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)
        self._kept: list[Array] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Fill the stack with the first observation."""
        value, info = self.env.reset(seed=seed, options=options)
        self._kept = [value.copy()] * self._frames
        return self._joined(self._kept), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Push the oldest observation out."""
        value, reward, over, cut, info = self.env.step(action)
        self._kept = [*self._kept[1:], value.copy()]
        return self._joined(self._kept), reward, over, cut, info

    def _joined(self, values: list[Array]) -> Array:
        return np.stack(values) if self._plane else np.concatenate(values, axis=-1)


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    return FrameStack(made, options.frames)


WRAPPER = Wrapper("frame-stack", Config, _wrap)
