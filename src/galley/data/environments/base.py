"""The seam between agents and worlds: several copies of one environment, stepped together over flat arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]

VectorKind = Literal["auto", "serial", "native", "processes"]


class Episode(NamedTuple):
    """One that ended: sum of its rewards, number of its steps, and the copy that it was played in."""

    ret: float
    length: int
    environment: int


class Step(NamedTuple):
    """What came of one action in each of N copies.

    Args:
        observations: to act on next, [N, D]; after an episode's end usually the first ones of the next episode.
        rewards: [N] float32.
        terminated: [N] bool, the environment ended the episode: nothing follows, so nothing is bootstrapped.
        truncated: [N] bool, a limit ended it: the value of the last observation stands for what would have followed.
        finals: what the actions led to, [N, D], where that differs from `observations` because an episode ended and
            the next began; None when no row differs.
        idle: [N] bool, rows in which nothing was played (a native environment that resets itself takes one step for
            it): they are no experience; None when there are none.
        episodes: those that ended.
    """

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    finals: Array | None
    idle: Array | None
    episodes: Sequence[Episode]

    @property
    def successors(self) -> Array:
        """What the actions led to, [N, D]."""
        return self.observations if self.finals is None else self.finals


class Environments(Protocol):
    """N copies of one environment. Rows of every array are copies, in the same order.

    Randomness comes from the seed given to `reset` alone, and `load_state(state())` continues exactly.
    """

    num_envs: int
    observations: ObservationLayout
    actions: ActionLayout

    def reset(self, seed: int) -> Array:
        """Begin anew: first observations, [N, D]. Copy i plays its episode k from a seed made of (seed, i, k)."""

    def step(self, actions: Array) -> Step:
        """Act in every copy; episodes that end are followed by new ones.

        Args:
            actions: [N] int64 for discrete spaces, [N, A] else; see `ActionLayout`.

        Raises:
            GalleyError: `environment-failed` when an environment raises or dies, `environment-invalid` when it gives
                something that its spaces exclude, such as a reward that is not a number.
        """

    def action_masks(self) -> Array | None:
        """Which actions are allowed now, [N, M] bool over all choices; None when the environment says nothing."""

    def state(self) -> Mapping[str, Any]:
        """All that `load_state` needs: tensors and plain values in nested mappings."""

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Continue exactly where `state` was taken: the observations to act on, [N, D]."""

    def close(self) -> None:
        """Release windows, simulators and processes."""


@dataclass(frozen=True)
class EnvironmentSettings:
    """How environments are made: the plan's and the recipe's decisions, as plain values.

    Args:
        reference: `gym:ID`, `module:factory`, `file.py:factory` or `pettingzoo:NAME`.
        num_envs: copies played together.
        kwargs: given to the environment's constructor.
        wrappers: name to settings, applied in order from the inside out; see `data/environments/wrappers/`.
        observe: keys of a dict observation that are looked at; all when empty.
        vector: `auto` takes a native vector environment where there is one; `serial`, `native` or `processes`.
        workers: processes for `processes`.
    """

    reference: str
    num_envs: int = 1
    kwargs: Mapping[str, Any] | None = None
    wrappers: Mapping[str, Mapping[str, Any]] | None = None
    observe: tuple[str, ...] = ()
    vector: VectorKind = "auto"
    workers: int = 2
