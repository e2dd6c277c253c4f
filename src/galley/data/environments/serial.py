"""Copies of one environment, stepped one after the other in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import Episode, Step
from galley.data.environments.layout import ActionLayout, ObservationLayout, action_layout, observation_layout
from galley.data.environments.seeds import episode_seed

if TYPE_CHECKING:
    import gymnasium

    Array = np.ndarray[Any, Any]
    Make = Callable[[], gymnasium.Env[Any, Any]]


class Serial:
    """Every copy in this process.

    A simulator's inside cannot be stored, but it is a function of its seed and actions: the state of a copy is the
    seed of its episode and the actions since, and to load it is to play them again.

    Args:
        make: makes one environment.
        num_envs: copies.
        observe: keys of a dict observation that are looked at; all when empty.
        first: number of the first copy, where other processes hold the ones before.
    """

    def __init__(self, make: Make, num_envs: int, *, observe: Sequence[str] = (), first: int = 0) -> None:
        self.num_envs = num_envs
        self._environments = [make() for _ in range(num_envs)]
        self.observations: ObservationLayout = observation_layout(
            self._environments[0].observation_space, observe=observe
        )
        self.actions: ActionLayout = action_layout(self._environments[0].action_space)
        self._first = first
        self._masks = getattr(self._environments[0].unwrapped, "action_masks", None) is not None
        self._seed = 0
        self._episode = [0] * num_envs
        self._played: list[list[Any]] = [[] for _ in range(num_envs)]
        self._returns = [0.0] * num_envs
        self._now = np.zeros((num_envs, self.observations.size), self.observations.dtype)

    def reset(self, seed: int) -> Array:
        """First observations of new episodes."""
        self._seed = seed
        for index in range(self.num_envs):
            self._begin(index, 0, self._now[index])
        return self._now.copy()

    def step(self, actions: Array) -> Step:
        """One action in each copy; where an episode ends the next begins at once."""
        number = self.num_envs
        observations = np.empty_like(self._now)
        rewards = np.zeros(number, np.float32)
        terminated, truncated = np.zeros(number, np.bool_), np.zeros(number, np.bool_)
        finals: Array | None = None
        ended: list[Episode] = []
        for index in range(number):
            reward, over, cut = self._act(index, actions[index], observations[index])
            rewards[index], terminated[index], truncated[index] = reward, over, cut
            if over or cut:
                if finals is None:
                    finals = np.empty_like(observations)
                finals[index] = observations[index]
                ended.append(Episode(self._returns[index], len(self._played[index]), self._first + index))
                self._begin(index, self._episode[index] + 1, observations[index])
        if finals is not None:
            going_on = ~(terminated | truncated)
            finals[going_on] = observations[going_on]
        self._now = observations
        return Step(observations, rewards, terminated, truncated, finals, None, ended)

    def action_masks(self) -> Array | None:
        """What each environment's `action_masks()` says."""
        if not self._masks:
            return None
        rows = [np.asarray(made.unwrapped.action_masks(), np.bool_) for made in self._environments]
        masks = np.stack(rows).reshape(self.num_envs, -1)
        if masks.shape[1] != self.actions.num_choices:
            raise GalleyError(
                "environment-invalid",
                f"action_masks() has {masks.shape[1]} entries for {self.actions.num_choices} choices",
            )
        return masks

    def state(self) -> Mapping[str, Any]:
        """Seed and actions of each running episode."""
        import torch

        played = [torch.as_tensor(np.asarray(actions)) for actions in self._played]
        return {"seed": self._seed, "episodes": list(self._episode), "actions": played}

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Play the running episodes again up to where they were."""
        self._seed = state["seed"]
        for index, (episode, actions) in enumerate(zip(state["episodes"], state["actions"], strict=True)):
            self._begin(index, episode, self._now[index])
            for action in actions.numpy():
                self._act(index, action, self._now[index])
        return self._now.copy()

    def close(self) -> None:
        """Close every copy."""
        for made in self._environments:
            made.close()

    def _begin(self, index: int, episode: int, out: Array) -> None:
        self._episode[index] = episode
        self._played[index] = []
        self._returns[index] = 0.0
        try:
            value, _ = self._environments[index].reset(seed=episode_seed(self._seed, self._first + index, episode))
        except Exception as error:
            raise self._failed(index, "reset", error) from error
        self.observations.flatten(value, out)

    def _act(self, index: int, action: Any, out: Array) -> tuple[float, bool, bool]:
        try:
            value, reward, over, cut, _ = self._environments[index].step(self.actions.native(action))
        except Exception as error:
            raise self._failed(index, f"step {len(self._played[index]) + 1}", error) from error
        self._played[index].append(action)
        reward = float(reward)
        if not math.isfinite(reward):
            raise GalleyError(
                "environment-invalid",
                f"environment {self._first + index}, step {len(self._played[index])} of episode "
                f"{self._episode[index]}: the reward is {reward}",
                hint="rewards must be finite numbers",
            )
        self._returns[index] += reward
        self.observations.flatten(value, out)
        return reward, bool(over), bool(cut)

    def _failed(self, index: int, when: str, error: Exception) -> GalleyError:
        return GalleyError(
            "environment-failed",
            f"environment {self._first + index} raised at {when} of episode {self._episode[index]}: "
            f"{type(error).__name__}: {error}",
            hint="the run is saved; correct the environment and resume",
        )
