"""Play whole episodes with a policy, or with random actions, without learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from galley.data.environments import Environments, Episode
    from galley.data.environments.layout import ActionLayout
    from galley.models.control.decision import Decision, Remembered

    Array = np.ndarray[Any, Any]


def evaluation_seed(seed: int) -> int:
    """Of evaluations during training: far from the training's own episodes."""
    return seed + 1_000_003


def verdict_seed(seed: int) -> int:
    """Of the verdict's episodes, by which nothing was chosen."""
    return seed + 2_000_003


class Player(Protocol):
    """Chooses actions for N copies, step after step."""

    def begin(self, num_envs: int) -> None:
        """New episodes in all copies."""

    def act(self, observations: Array, masks: Array | None) -> Array:
        """Actions for raw observations, [N] or [N, A].

        Args:
            observations: [N, D].
            masks: allowed choices, [N, M]; None when all are.
        """

    def ended(self, over: Array) -> None:
        """Copies whose episode ended, [N] bool: what was remembered of it is forgotten."""


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
    """
    number = environments.num_envs
    wanted = -(-episodes // number)
    done: list[list[Episode]] = [[] for _ in range(number)]
    observations = environments.reset(seed)
    player.begin(number)
    while any(len(found) < wanted for found in done):
        step = environments.step(player.act(observations, environments.action_masks()))
        observations = step.observations
        over = step.terminated | step.truncated
        if step.idle is not None:
            over |= step.idle  # an idle step is not to be remembered either
        if over.any():
            player.ended(over)
        for episode in step.episodes:
            done[episode.environment].append(episode)
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


def random_actions(actions: ActionLayout, rows: int, random: np.random.Generator, masks: Array | None = None) -> Array:
    """Uniform actions, [N] or [N, A], among the allowed ones."""
    if actions.kind == "box":
        low, high = np.asarray(actions.low), np.asarray(actions.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        numbers = random.standard_normal((rows, actions.size))
        inside = random.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), (rows, actions.size))
        return np.where(bounded, inside, np.clip(numbers, low, high)).astype(np.float32)
    scores = random.random((rows, actions.num_choices))
    if masks is not None:
        scores = np.where(masks, scores, -1.0)
    parts, start = [], 0
    for size in actions.sizes:
        parts.append(scores[:, start : start + size].argmax(axis=1))
        start += size
    return parts[0] if actions.kind == "discrete" else np.stack(parts, axis=1)
