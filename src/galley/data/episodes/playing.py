"""Play episodes and keep them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from galley.data.episodes.stored import StoredEpisodes

if TYPE_CHECKING:
    from galley.data.environments import Environments, Step

    Array = np.ndarray[Any, Any]


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


def steps(environments: Environments, player: Player, seed: int) -> Iterator[tuple[Array, Array, Step]]:
    """Play without an end.

    Args:
        environments: what is played in.
        player: chooses the actions.
        seed: of the environments; the same seed gives the same first observations.

    Yields:
        What was seen [N, D], what was done [N] or [N, A], and what came of it.
    """
    observations = environments.reset(seed)
    player.begin(environments.num_envs)
    while True:
        actions = player.act(observations, environments.action_masks())
        step = environments.step(actions)
        yield observations, actions, step
        over = step.terminated | step.truncated
        if step.idle is not None:
            over |= step.idle  # an idle step is not to be remembered either
        if over.any():
            player.ended(over)
        observations = step.observations


def from_environment(environments: Environments, player: Player, episodes: int, *, seed: int) -> StoredEpisodes:
    """Play and keep whole episodes, as many in every copy, so that short ones do not count more often.

    Args:
        environments: `episodes` should be a multiple of their number; else the last ones of the next multiple are
            left out.
        player: chooses the actions.
        episodes: how many, at least one.
        seed: of the environments.
    """
    number = environments.num_envs
    wanted = -(-episodes // number)
    running: list[list[tuple[Any, ...]]] = [[] for _ in range(number)]
    done: list[list[list[tuple[Any, ...]]]] = [[] for _ in range(number)]
    for observations, actions, step in steps(environments, player, seed):
        _keep(observations, actions, step, running, done)
        if all(len(found) >= wanted for found in done):
            break
    whole = [done[copy][k] for k in range(wanted) for copy in range(number)][:episodes]
    rows = [row for episode in whole for row in episode]
    columns = [np.stack([np.asarray(row[column]) for row in rows]) for column in range(6)]
    return StoredEpisodes(environments.observations, environments.actions, *columns)


def _keep(
    observations: Array,
    actions: Array,
    step: Step,
    running: list[list[tuple[Any, ...]]],
    done: list[list[list[tuple[Any, ...]]]],
) -> None:
    successors = step.successors
    for copy, rows in enumerate(running):
        if step.idle is not None and step.idle[copy]:
            continue
        terminated = bool(step.terminated[copy])
        truncated = bool(step.truncated[copy]) and not terminated
        rows.append(
            (
                observations[copy].copy(),
                np.array(actions[copy]),
                step.rewards[copy],
                successors[copy].copy(),
                terminated,
                truncated,
            )
        )
        if terminated or truncated:
            done[copy].append(rows.copy())
            rows.clear()
