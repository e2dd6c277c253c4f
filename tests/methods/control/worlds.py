"""Small worlds and agents for tests of every control method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from galley.data.environments import Environments, EnvironmentSettings, open_environments
from galley.data.episodes import StoredEpisodes
from galley.methods.control import registry
from galley.methods.control.base import Agent, ControlMethod, World, WorldFacts
from galley.methods.control.playing import RandomPlayer
from galley.models.control.spec import NetworkSpec

SMALL: dict[str, Any] = {
    "num_envs": 2,
    "num_steps": 16,
    "batch_size": 16,
    "num_epochs": 2,
    "buffer_size": 500,
    "learning_starts": 20,
    "train_frequency": 4,
    "gradient_steps": 2,
    "num_quantiles": 5,
    "lstm_units": 8,
}
"""Settings that make any method small; each takes those that it has."""
STEPS = 2000


class Masked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole in which pushing left is forbidden while the cart is far left."""

    def action_masks(self) -> np.ndarray[Any, Any]:
        return np.array([self.env.unwrapped.state[0] > -0.5, True])  # type: ignore[attr-defined]


class Constant(gymnasium.Env[Any, Any]):
    """Reward 1 for every step, forever: the same observation, and no end of its own."""

    observation_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, box: bool = False) -> None:
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32) if box else gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 1.0, False, False, {}


def masked() -> gymnasium.Env[Any, Any]:
    return Masked(gymnasium.make("CartPole-v1", disable_env_checker=True))


def constant_10(box: bool = False) -> gymnasium.Env[Any, Any]:
    """Cut off after ten steps."""
    return gymnasium.wrappers.TimeLimit(Constant(box), 10)


def reference(kind: type[ControlMethod]) -> str:
    """A world whose actions the method can learn."""
    if kind.name == "maskable-ppo":
        return "methods.control.worlds:masked"
    return "gym:CartPole-v1" if "discrete" in kind.action_kinds else "gym:Pendulum-v1"


def environments(words: str, num_envs: int, **kwargs: Any) -> Environments:
    return open_environments(EnvironmentSettings(words, num_envs, kwargs=kwargs, vector="serial"))


def make(
    name: str,
    *,
    words: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    hidden: tuple[int, ...] = (8, 8),
    kwargs: Mapping[str, Any] | None = None,
) -> Agent:
    """A small agent in a small world."""
    kind = registry.get(name)
    small = {key: value for key, value in SMALL.items() if key in kind.Config.model_fields}
    method = kind(kind.Config.model_validate({**small, **(settings or {})}))
    words = words or reference(kind)
    worlds = environments(words, max(1, method.num_envs), **(kwargs or {}))
    network = NetworkSpec(hidden, kind.network.activation)
    facts = WorldFacts(worlds.observations, worlds.actions, network, STEPS)
    offline = kind.experience == "offline"
    episodes = random_episodes(worlds, 300) if offline else None
    return method.agent(World(facts, None if offline else worlds, episodes, seed, "cpu", lambda kind, message: None))


def random_episodes(worlds: Environments, steps: int) -> StoredEpisodes:
    """What random actions do in one copy, in whole episodes."""
    player = RandomPlayer(worlds.actions, seed=3)
    rows: list[tuple[Any, ...]] = []
    observations = worlds.reset(5)
    over = False
    while len(rows) < steps or not over:
        actions = player.act(observations, None)
        step = worlds.step(actions)
        rows.append(
            (
                observations[0].copy(),
                actions[0],
                step.rewards[0],
                step.successors[0].copy(),
                step.terminated[0],
                step.truncated[0],
            )
        )
        over = bool(step.terminated[0] or step.truncated[0])
        observations = step.observations
    columns = [np.stack([np.asarray(row[i]) for row in rows]) for i in range(6)]
    return StoredEpisodes(worlds.observations, worlds.actions, *columns)
