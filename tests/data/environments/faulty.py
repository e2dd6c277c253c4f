"""Environments that misbehave, each in one way, for tests of what is said about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Faulty(gymnasium.Env[Any, Any]):
    """A counter that ends after `length` steps and shows (count, seed-dependent number).

    Args:
        fault: what goes wrong at step `at`: `nan`, `raise`, `shape`, `die`, `random`, or nothing.
        at: step, from 1; of `random` every step.
        length: of an episode.
    """

    observation_space: gymnasium.Space[Any] = spaces.Box(-1e9, 1e9, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, fault: str = "", at: int = 3, length: int = 5) -> None:
        self.fault, self.at, self.length, self.count, self.number = fault, at, length, 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count, self.number = 0, float(self.np_random.random())
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        reward = 1.0
        if self.count == self.at:
            if self.fault == "nan":
                reward = float("nan")
            if self.fault == "raise":
                raise RuntimeError("the motor is on fire")
            if self.fault == "shape":
                return np.zeros(3, np.float32), reward, False, False, {}
            if self.fault == "die":
                os.kill(os.getpid(), 9)
        return self._seen(), reward, self.count == self.length, False, {}

    def _seen(self) -> Any:
        shift = np.random.random() if self.fault == "random" else 0.0
        return np.array([self.count, self.number + shift], np.float32)


class Spoiler(gymnasium.Env[Any, Any]):
    """Writes into the action that it is given."""

    observation_space = spaces.Box(-1e9, 1e9, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    total = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.total = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        action *= 2
        self.total += float(action[0])
        return np.array([self.total], np.float32), 0.0, False, False, {}


class Masked(gymnasium.Env[Any, Any]):
    """Allows action number `count` modulo 3 alone."""

    observation_space = spaces.Discrete(5, start=2)
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return 2, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return 2 + self.count % 5, float(action), False, False, {}

    def action_masks(self) -> Any:
        return np.arange(3) == self.count % 3


class MaskedPicture(Masked):
    """The same, and it can be drawn."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.count, np.uint8)


def masked_inside() -> Any:
    return gymnasium.wrappers.TimeLimit(Masked(), 100)


class Pair:
    """Two agents count; `b` leaves after two steps, `a` after four."""

    possible_agents = ("a", "b")

    def __init__(self, uneven: bool = False) -> None:
        self.agents: list[str] = []
        self.uneven = uneven

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-9, 9, (3 if self.uneven and agent == "b" else 2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = ["a", "b"], 0
        self.number = float(np.random.default_rng(seed).random())
        return self._seen(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        self.count += 1
        values, rewards = self._seen(), {agent: float(actions[agent]) for agent in self.agents}
        ends = {agent: self.count == {"a": 4, "b": 2}[agent] for agent in self.agents}
        cuts = dict.fromkeys(self.agents, False)
        self.agents = [agent for agent in self.agents if not ends[agent]]
        return values, rewards, ends, cuts, {}

    def close(self) -> None:
        """Nothing is open."""

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([self.count, self.number], np.float32) for agent in self.agents}


def spaces_of_every_kind() -> Iterator[gymnasium.Space[Any]]:
    yield spaces.Box(-1, 1, (3,), np.float32)
    yield spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    yield spaces.Box(0, 255, (6, 5, 3), np.uint8)
    yield spaces.Discrete(4, start=-2)
    yield spaces.MultiDiscrete([3, 2])
    yield spaces.MultiBinary((2, 2))
    yield spaces.Dict({"x": spaces.Box(0, 1, (2,), np.float32), "y": spaces.Dict({"z": spaces.Discrete(3)})})
    yield spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 255, (4, 4, 1), np.uint8)))
