"""Running mean and variance, for observations and returns; part of the policy, so never lost or forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class Moments:
    """Mean and variance of all rows seen, in float64.

    Args:
        size: numbers of a row.

    Source: Chan et al. 1979, the parallel update of mean and variance.
    """

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size, np.float64)
        self.variance = np.ones(size, np.float64)

    def update(self, rows: Array) -> None:
        """Take in rows, [N, size]."""
        rows = rows.astype(np.float64, copy=False)
        number = len(rows)
        if not number:
            return
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
        total = self.count + number
        delta = mean - self.mean
        squares = self.variance * self.count + variance * number + delta**2 * (self.count * number / total)
        self.mean = self.mean + delta * (number / total)
        self.variance = squares / total
        self.count = total

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        import torch

        return {
            "count": self.count,
            "mean": torch.from_numpy(self.mean.copy()),
            "variance": torch.from_numpy(self.variance.copy()),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.count = state["count"]
        self.mean, self.variance = state["mean"].numpy().copy(), state["variance"].numpy().copy()


class Normaliser:
    """Observations shifted and scaled to mean 0 and variance 1, then clipped.

    Args:
        size: numbers of an observation.
        clip: bound of the result.
    """

    def __init__(self, size: int, clip: float = 10.0) -> None:
        self.moments = Moments(size)
        self.clip = clip

    def __call__(self, observations: Array) -> Array:
        """Normalised rows, float32."""
        scaled = (observations - self.moments.mean) / np.sqrt(self.moments.variance + 1e-8)
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


class ReturnScale:
    """Rewards divided by the standard deviation of discounted returns, then clipped.

    Args:
        num_envs: copies whose returns are followed.
        gamma: discount.
        clip: bound of the result.

    Source: Engstrom et al. 2020, "Implementation Matters in Deep Policy Gradients", section 3.
    """

    def __init__(self, num_envs: int, gamma: float, clip: float = 10.0) -> None:
        self.moments = Moments(1)
        self.gamma = gamma
        self.clip = clip
        self._returns = np.zeros(num_envs, np.float64)

    def __call__(self, rewards: Array, over: Array, idle: Array | None = None) -> Array:
        """Scaled rewards, [N] float32; `over` marks copies whose episode ended, `idle` those that did not play."""
        self._returns = self._returns * self.gamma + rewards
        self.moments.update(self._returns[:, None] if idle is None else self._returns[~idle, None])
        self._returns[over] = 0.0
        scaled = rewards / np.sqrt(self.moments.variance[0] + 1e-8)
        clipped: Array = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return clipped

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        import torch

        return {"moments": self.moments.state(), "returns": torch.from_numpy(self._returns.copy())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.moments.load_state(state["moments"])
        self._returns = state["returns"].numpy().copy()
