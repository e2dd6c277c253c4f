"""Stored episodes: what somebody, or something, did in a world, for learning without acting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StoredEpisodes:
    """Transitions of whole episodes, one after the other.

    Args:
        observations_layout, actions_layout: what rows mean.
        observations: [T, D], what was seen.
        actions: [T] or [T, A], what was done; see `ActionLayout`.
        rewards: [T] float32.
        successors: [T, D], what was seen next.
        terminated, truncated: [T] bool; one of them is true at the end of each episode.
        guessed: whether the layouts were read off the arrays alone, whose outermost numbers are then the bounds.
    """

    observations_layout: ObservationLayout
    actions_layout: ActionLayout
    observations: Array
    actions: Array
    rewards: Array
    successors: Array
    terminated: Array
    truncated: Array
    guessed: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def starts(self) -> Array:
        """Rows at which episodes begin."""
        ends = np.flatnonzero(self.terminated | self.truncated)
        return np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)

    @property
    def returns(self) -> Array:
        """Sum of rewards of each episode, float64."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.starts)


def joined(parts: list[StoredEpisodes], names: list[str]) -> StoredEpisodes:
    """Several as one.

    Args:
        parts: at least one.
        names: of the files that they come from.

    Raises:
        GalleyError: `data-format` when they are of different worlds.
    """
    first = parts[0]
    for part, name in zip(parts, names, strict=True):
        if (part.observations_layout, part.actions_layout) != (first.observations_layout, first.actions_layout):
            raise GalleyError(
                "data-format",
                f"{name}: its observations or actions are not those of {names[0]}",
                hint="keep episodes of one world in a folder; say num_actions where the files do not",
            )
    columns = ("observations", "actions", "rewards", "successors", "terminated", "truncated")
    together = {column: np.concatenate([getattr(part, column) for part in parts]) for column in columns}
    guessed = all(part.guessed for part in parts)
    return StoredEpisodes(first.observations_layout, first.actions_layout, **together, guessed=guessed)
