"""Stored episodes: what somebody, or something, did in a world, for learning without acting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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
    """

    observations_layout: ObservationLayout
    actions_layout: ActionLayout
    observations: Array
    actions: Array
    rewards: Array
    successors: Array
    terminated: Array
    truncated: Array

    def __len__(self) -> int:
        return len(self.rewards)
