"""Several learners in one world: rows split into groups, each an `Environments` of its own. See `pettingzoo.py`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import Environments, Step

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]


def split(whole: Environments, rows: Sequence[Sequence[int]]) -> list[Group]:
    """One `Environments` for each group of rows; every row must be in exactly one.

    Args:
        whole: all rows together.
        rows: of each group.

    Raises:
        ValueError: when a row is in no group or in two.
    """
    if sorted(row for group in rows for row in group) != list(range(whole.num_envs)):
        raise ValueError(f"{rows} is no partition of {whole.num_envs} rows")
    shared = _Meeting(whole, len(rows))
    return [Group(shared, number, np.asarray(group, np.int64)) for number, group in enumerate(rows)]


class _Meeting:
    """Where the groups' actions come together: the last to arrive steps the whole."""

    def __init__(self, whole: Environments, groups: int) -> None:
        self.whole = whole
        self.actions: list[tuple[Array, Array]] = []
        self.step: Step | None = None
        self.first: Array | None = None
        self.error: Exception | None = None
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(groups, action=self._act)

    def _act(self) -> None:
        actions = self.actions
        self.actions = []
        try:
            one = actions[0][1]
            joined = np.zeros((self.whole.num_envs, *one.shape[1:]), one.dtype)
            for rows, chosen in actions:
                joined[rows] = chosen
            self.step = self.whole.step(joined)
        except Exception as error:  # raised in every group's thread, by `Group.step`
            self.error = error


class Group:
    """Some rows of a whole; `step` waits until every group has acted.

    Args:
        shared: where groups meet.
        number: of the group.
        rows: its rows in the whole.
    """

    def __init__(self, shared: _Meeting, number: int, rows: Array) -> None:
        self._shared, self._number, self._rows = shared, number, rows
        self.num_envs = len(rows)
        self.observations: ObservationLayout = shared.whole.observations
        self.actions: ActionLayout = shared.whole.actions
        self._place = {int(row): place for place, row in enumerate(rows)}

    def reset(self, seed: int) -> Array:
        """First observations of the rows; the first group that asks begins the whole anew, so all give one seed."""
        with self._shared.lock:
            if self._shared.first is None:
                self._shared.first = self._shared.whole.reset(seed)
            first: Array = self._shared.first[self._rows]
        return first

    def step(self, actions: Array) -> Step:
        """Act with the rows, when all other groups do."""
        shared = self._shared
        shared.actions.append((self._rows, np.array(actions)))
        try:
            shared.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise GalleyError("environment-failed", "another group of agents has stopped acting") from error
        if shared.error is not None:
            raise shared.error
        whole = shared.step
        assert whole is not None
        rows = self._rows
        finals = None if whole.finals is None else whole.finals[rows]
        idle = None if whole.idle is None else whole.idle[rows]
        episodes = [
            episode._replace(environment=self._place[episode.environment])
            for episode in whole.episodes
            if episode.environment in self._place
        ]
        return Step(
            whole.observations[rows],
            whole.rewards[rows],
            whole.terminated[rows],
            whole.truncated[rows],
            finals,
            idle,
            episodes,
        )

    def action_masks(self) -> Array | None:
        """Of the rows."""
        masks = self._shared.whole.action_masks()
        return None if masks is None else masks[self._rows]

    def state(self) -> Mapping[str, Any]:
        """Of the whole, in every group: one of them is enough to continue from."""
        return self._shared.whole.state()

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Continue the whole from the state that the first group which asks has; all must be of one moment."""
        with self._shared.lock:
            if self._shared.first is None:
                self._shared.first = self._shared.whole.load_state(state)
            first: Array = self._shared.first[self._rows]
        return first

    def close(self) -> None:
        """Leave; the others' next step fails. The whole is closed by who made it."""
        self._shared.barrier.abort()
