"""Environments that step all copies at once by themselves, such as Gymnasium's CartPole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.base.generators import generator_state, load_generator
from galley.data.environments.base import Episode, Step
from galley.data.environments.layout import action_layout, observation_layout
from galley.data.environments.rows import row_not_finite

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    Array = np.ndarray[Any, Any]


class Native:
    """A vector environment of Gymnasium that takes one step to begin its next episode (`AutoresetMode.NEXT_STEP`).

    Its inside is stored as what its attributes hold: arrays, numbers and random generators.

    Args:
        made: the vector environment.
        observe: keys of a dict observation that are looked at; all when empty.
    """

    def __init__(self, made: VectorEnv[Any, Any, Any], *, observe: Sequence[str] = ()) -> None:
        self._made = made
        self.num_envs: int = made.num_envs
        self.observations = observation_layout(made.single_observation_space, observe=observe)
        self.actions = action_layout(made.single_action_space)
        self._plain = self.observations.is_vector and len(self.observations.leaves) == 1
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._any_over = False
        self._now = np.zeros((self.num_envs, self.observations.size), self.observations.dtype)

    def reset(self, seed: int) -> Array:
        """First observations of new episodes."""
        values, _ = self._made.reset(seed=seed & 0x7FFFFFFF)
        self._returns[:], self._lengths[:], self._over[:], self._any_over = 0, 0, False, False
        self._now = self._flat(values)
        return self._now

    def step(self, actions: Array) -> Step:
        """One action in each copy; rows that begin an episode are idle."""
        try:
            values, rewards, terminated, truncated, _ = self._made.step(self.actions.native_many(actions))
        except Exception as error:
            raise GalleyError(
                "environment-failed",
                f"the environments raised: {type(error).__name__}: {error}",
                hint="correct the environment; galley resume continues from the newest checkpoint",
            ) from error
        rewards = rewards.astype(np.float32, copy=False)
        if not np.isfinite(rewards).all():
            raise GalleyError("environment-invalid", f"rewards must be finite numbers, not {rewards.tolist()}")
        idle = self._over if self._any_over else None
        self._returns += rewards
        self._lengths += 1
        if idle is not None:
            self._returns[idle], self._lengths[idle] = 0, 0
        self._over = terminated | truncated
        self._any_over = bool(self._over.any())
        episodes = (
            [Episode(float(self._returns[i]), int(self._lengths[i]), int(i)) for i in np.flatnonzero(self._over)]
            if self._any_over
            else ()
        )
        self._now = self._flat(values)
        row = row_not_finite(self._now)
        if row is not None:
            raise GalleyError("environment-invalid", f"environment {row}: the observation is {self._now[row].tolist()}")
        return Step(self._now, rewards, terminated, truncated, None, idle, episodes)

    def action_masks(self) -> None:
        """Vector environments say nothing."""

    def state(self) -> Mapping[str, Any]:
        """What the attributes hold."""
        import torch

        own = {name: torch.from_numpy(getattr(self, name).copy()) for name in ("_returns", "_lengths", "_over", "_now")}
        return {"own": own, "world": snapshot(self._made.unwrapped)}

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Put everything back."""
        for name, value in state["own"].items():
            setattr(self, name, value.numpy().copy())
        self._any_over = bool(self._over.any())
        restore(self._made.unwrapped, state["world"])
        return self._now

    def close(self) -> None:
        """Close the vector environment."""
        self._made.close()

    def _flat(self, values: Any) -> Array:
        if self._plain:
            flat: Array = np.asarray(values, np.float32).reshape(self.num_envs, -1)
            return flat
        return self.observations.flatten_many(values, self.num_envs)


_PLAIN = (bool, int, float, str, type(None))


def snapshot(thing: Any) -> dict[str, Any]:
    """The attributes of an object that change and can be stored: arrays, plain values and a random generator.

    Raises:
        GalleyError: `environment-unsupported` when it holds something else that looks like state.
    """
    import torch

    kept: dict[str, Any] = {}
    for name, value in vars(thing).items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            kept[name] = torch.from_numpy(value.copy())
        elif isinstance(value, np.random.Generator):
            kept[name] = {"generator": generator_state(value)}
        elif isinstance(value, _PLAIN):
            kept[name] = value
        elif isinstance(value, np.generic):
            kept[name] = value.item()
    return kept


def restore(thing: Any, kept: Mapping[str, Any]) -> None:
    """Put a `snapshot` back."""
    for name, value in kept.items():
        if isinstance(value, Mapping):
            generator = np.random.default_rng()
            load_generator(generator, value["generator"])
            setattr(thing, name, generator)
        else:
            setattr(thing, name, value.numpy().copy() if hasattr(value, "numpy") else value)
