"""Play whole episodes with a policy, or with random actions, without learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.samples import random_actions
from galley.data.episodes.playing import Player, steps

if TYPE_CHECKING:
    from galley.data.environments import Environments, Episode
    from galley.data.environments.layout import ActionLayout
    from galley.models.control.decision import Decision, Remembered

    Array = np.ndarray[Any, Any]

__all__ = ["DecisionPlayer", "Player", "RandomPlayer", "evaluation_seed", "play", "verdict_seed"]

LONGEST = 50_000
"""Steps of an episode that is waited for."""


def evaluation_seed(seed: int) -> int:
    """Of evaluations during training: far from the training's own episodes."""
    return seed + 1_000_003


def verdict_seed(seed: int) -> int:
    """Of the verdict's episodes, by which nothing was chosen."""
    return seed + 2_000_003


def play(environments: Environments, player: Player, episodes: int, *, seed: int) -> list[Episode]:
    """Play the same number of episodes in every copy, so that short ones do not count more often.

    Args:
        environments: `episodes` should be a multiple of their number; else the next multiple is played and the last
            ones are left out.
        player: chooses the actions.
        episodes: how many.
        seed: of the environments; the same seed gives the same first observations.

    Returns:
        The episodes, copy by copy.

    Raises:
        GalleyError: `environment-unsupported` for an episode that does not end within `LONGEST` steps.
    """
    number = environments.num_envs
    wanted = -(-episodes // number)
    done: list[list[Episode]] = [[] for _ in range(number)]
    for played, (_, _, step) in enumerate(steps(environments, player, seed), start=1):
        for episode in step.episodes:
            done[episode.environment].append(episode)
        if all(len(found) >= wanted for found in done):
            break
        if played >= LONGEST * wanted:
            raise GalleyError(
                "environment-unsupported",
                f"{'an episode' if wanted == 1 else f'{wanted} episodes'} did not end within {played:,} steps",
                hint="give it a time limit, as a new run: data.options.wrappers: {time-limit: {steps: 1000}}",
            )
    return [found[k] for k in range(wanted) for found in done][:episodes]


class DecisionPlayer:
    """The best actions of a decision function.

    Args:
        decision: in evaluation mode while it plays.
    """

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._remembered: Remembered | None = None
        self._starts: Array | None = None

    def begin(self, num_envs: int) -> None:
        """Forget earlier episodes."""
        self._decision.eval()
        self._remembered = self._decision.begin(num_envs)
        self._starts = None

    def act(self, observations: Array, masks: Array | None) -> Array:
        """The best action for each row."""
        import torch

        with torch.inference_mode():
            starts, allowed = (None if told is None else torch.as_tensor(told) for told in (self._starts, masks))
            found, self._remembered = self._decision.act(
                torch.as_tensor(observations), self._remembered, starts, allowed
            )
        self._starts = None
        actions: Array = found.numpy()
        return actions

    def ended(self, over: Array) -> None:
        """A policy with memory forgets these copies before the next step."""
        self._starts = over


class RandomPlayer:
    """Uniform actions: what a policy is compared with.

    Args:
        actions: layout.
        seed: of the choices.
    """

    def __init__(self, actions: ActionLayout, seed: int) -> None:
        self._actions = actions
        self._random = np.random.default_rng(seed)

    def begin(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def act(self, observations: Array, masks: Array | None) -> Array:
        """One action a row; unbounded numbers are drawn from a standard normal distribution."""
        return random_actions(self._actions, len(observations), self._random, masks)

    def ended(self, over: Array) -> None:
        """Nothing is remembered."""
