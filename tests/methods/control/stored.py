"""Players and stored episodes for tests of methods that learn without acting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from galley.data.environments.samples import random_actions
from galley.data.episodes import StoredEpisodes, from_environment
from galley.data.episodes.stored import joined
from galley.methods.control import registry
from galley.methods.control.base import Agent, World, WorldFacts
from galley.methods.control.playing import DecisionPlayer, evaluation_seed, play
from galley.models.control.spec import NetworkSpec
from methods.control import worlds

Array = np.ndarray[Any, Any]
BALANCES = np.array([0.1, 0.3, 1.0, 0.4])
"""A controller of CartPole that plays 500 steps."""


class Controller:
    """Pushes to where the weighted observation points, and the other way for a share of the steps."""

    def __init__(self, wrong_share: float, seed: int) -> None:
        self._share = wrong_share
        self._random = np.random.default_rng(seed)

    def begin(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def act(self, observations: Array, masks: Array | None) -> Array:
        best = (observations @ BALANCES > 0).astype(np.int64)
        pushes: Array = np.where(self._random.random(len(best)) < self._share, 1 - best, best)
        return pushes

    def ended(self, over: Array) -> None:
        """Nothing is remembered."""


class Swinger:
    """Torques for Pendulum: energy is pumped in until it can be held upright; noise on top."""

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._random = np.random.default_rng(seed)

    def begin(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def act(self, observations: Array, masks: Array | None) -> Array:
        cosine, sine, speed = observations.T
        energy = speed**2 / 6 + 5 * cosine - 5
        hold = -(16 * np.arctan2(sine, cosine) + 4 * speed)
        pump = -2 * np.sign(energy) * np.sign(speed)
        torque = np.where((cosine > 0.8) & (np.abs(speed) < 4), hold, pump)
        torque = torque + self._noise * self._random.standard_normal(len(torque))
        clipped: Array = np.clip(torque, -2, 2).astype(np.float32)[:, None]
        return clipped

    def ended(self, over: Array) -> None:
        """Nothing is remembered."""


@cache
def cartpole(shares: Sequence[float], *episodes: int) -> StoredEpisodes:
    """So many episodes of controllers with these shares of wrong pushes."""
    made = worlds.environments("gym:CartPole-v1", 5)
    parts = [
        from_environment(made, Controller(share, 3), many, seed=many)
        for share, many in zip(shares, episodes, strict=True)
    ]
    made.close()
    return joined(parts, [str(share) for share in shares])


@cache
def pendulum(noises: Sequence[float], episodes: int) -> StoredEpisodes:
    """Episodes of swingers with so much noise; infinite noise is a random player."""
    made = worlds.environments("gym:Pendulum-v1", 5)
    parts = []
    for number, noise in enumerate(noises):
        player = Swinger(min(noise, 100.0), 3)
        parts.append(from_environment(made, player, episodes, seed=number))
    made.close()
    return joined(parts, [str(noise) for noise in noises])


def agent(
    name: str, episodes: StoredEpisodes, *, hidden: tuple[int, ...] = (64, 64), steps: int = 2000, **settings: Any
) -> Agent:
    """An agent of a method on stored episodes."""
    kind = registry.get(name)
    network = NetworkSpec(hidden, kind.network.activation)
    facts = WorldFacts(episodes.observations_layout, episodes.actions_layout, network, steps)
    method = kind(kind.Config.model_validate(settings))
    return method.agent(World(facts, None, episodes, 0, "cpu", lambda kind, message: None))


def trained(made: Agent, updates: int) -> Agent:
    done = 0
    while done < updates:
        done += made.step(done).steps
    return made


def mean_return(made: Agent, reference: str, episodes: int = 10) -> float:
    """Of the best actions, in environments of their own."""
    opened = worlds.environments(reference, 10)
    played = play(opened, DecisionPlayer(made.decision), episodes, seed=evaluation_seed(0))
    opened.close()
    return float(np.mean([episode.ret for episode in played]))


__all__ = ["agent", "cartpole", "mean_return", "pendulum", "random_actions", "trained"]
