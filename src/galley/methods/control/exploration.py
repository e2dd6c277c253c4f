"""Continuous actions between -1 and 1: stretching them to the environment's bounds, and noise that explores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from galley.base import GalleyError
from galley.base.generators import generator_state, load_generator

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout

    Array = np.ndarray[Any, Any]

NoiseKind = Literal["none", "normal", "ornstein-uhlenbeck"]
_THETA, _INTERVAL = 0.15, 0.01
"""Pull back to zero, and time between steps, of Ornstein-Uhlenbeck noise (Lillicrap et al. 2016; Stable-Baselines3)."""


class ActionScale:
    """From -1 .. 1 to an environment's own units.

    Args:
        actions: a box.

    Raises:
        GalleyError: `environment-unsupported` when a bound is infinite.
    """

    def __init__(self, actions: ActionLayout) -> None:
        self._low, high = np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)
        if not (np.isfinite(self._low).all() and np.isfinite(high).all()):
            raise GalleyError(
                "environment-unsupported",
                f"actions between {list(actions.low)} and {list(actions.high)} have no finite bounds to stretch to",
                hint="wrap the environment so that its action space has bounds, or take ppo",
            )
        self._high, self._half = high, 0.5 * (high - self._low)

    def __call__(self, actions: Array) -> Array:
        """In the environment's units, within its bounds, [N, A] float32."""
        stretched: Array = self._low + (actions + 1.0) * self._half
        return np.clip(stretched, self._low, self._high).astype(np.float32, copy=False)


class Exploration:
    """Random actions, and noise added to a policy's own.

    Args:
        kind: `normal` noise is independent from step to step; `ornstein-uhlenbeck` drifts, and so moves slow systems
            further.
        std: standard deviation of normal noise, and sigma of the other.
        num_envs, size: N and A.
        seed: of its generator.
    """

    def __init__(self, kind: NoiseKind, std: float, num_envs: int, size: int, *, seed: int) -> None:
        self._kind, self._std = kind, std
        self._drift = np.zeros((num_envs, size), np.float64)
        self._random = np.random.default_rng(seed)

    def uniform(self) -> Array:
        """Actions that know nothing, [N, A] float32."""
        return self._random.uniform(-1.0, 1.0, self._drift.shape).astype(np.float32)

    def standard_normal(self) -> Array:
        """Noise for a policy that draws its actions itself, [N, A] float32."""
        return self._random.standard_normal(self._drift.shape, np.float32)

    def added(self, actions: Array) -> Array:
        """Actions with noise, within their bounds."""
        if self._kind == "none":
            return actions
        noise = self._random.standard_normal(self._drift.shape)
        if self._kind == "normal":
            noise *= self._std
        else:
            self._drift += -_THETA * _INTERVAL * self._drift + self._std * _INTERVAL**0.5 * noise
            noise = self._drift
        return np.clip(actions + noise, -1.0, 1.0).astype(np.float32)

    def ended(self, over: Array) -> None:
        """New episodes begin without drift, where `over` is true, [N]."""
        self._drift[over] = 0.0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        import torch

        return {"drift": torch.from_numpy(self._drift.copy()), "random": generator_state(self._random)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._drift[...] = state["drift"].numpy()
        load_generator(self._random, state["random"])
