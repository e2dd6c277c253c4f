"""Steps in several environments for on-policy methods: collection, advantages, minibatches.

Shapes: T steps of N copies, D numbers of an observation, B rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from galley.base import GalleyError
from galley.models.control.moments import Normaliser, ReturnScale

if TYPE_CHECKING:
    from galley.data.environments import Environments, Episode, Step
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]


class Actor(Protocol):
    """Chooses actions while steps are collected."""

    def begin(self, steps: int, num_envs: int) -> None:
        """So many steps follow."""

    def act(self, seen_ND: Array, starts_N: Array, masks_NO: Array | None) -> tuple[Array, Array]:
        """Actions as they were drawn, and as the environments take them.

        Args:
            seen_ND: observations, normalised already.
            starts_N: bool, the first observation of an episode.
            masks_NO: choices that are allowed, where they were asked for and the environments say so.
        """


class Final(NamedTuple):
    """Last observations of episodes that were cut off, where the next episode began in the same step."""

    step: int
    rows: Array
    seen: Array


class Rollout:
    """T steps of N copies, in arrays that are allocated once.

    Args:
        num_steps, num_envs: T and N.
        observations, actions: layouts.
        masked: whether allowed choices are stored.

    Attributes:
        observations: what was seen, [T + 1, N, D]; the last row is what comes next.
        actions: as drawn, [T, N] or [T, N, A].
        rewards: [T, N], scaled already.
        terminated, truncated, starts, valid: [T, N] bool; rows that are not valid were idle.
        masks: [T, N, O] bool, allowed choices; None when not stored.
        finals: see `Final`; other episodes that were cut off have their last observation in the next row.
        episodes: that ended.
    """

    def __init__(
        self, num_steps: int, num_envs: int, observations: ObservationLayout, actions: ActionLayout, *, masked: bool
    ) -> None:
        shape = (num_steps, num_envs)
        self.observations = np.zeros((num_steps + 1, num_envs, observations.size), observations.dtype)
        parts = shape if actions.kind == "discrete" else (*shape, actions.size)
        self.actions = np.zeros(parts, np.float32 if actions.kind == "box" else np.int64)
        self.rewards = np.zeros(shape, np.float32)
        self.terminated, self.truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.starts, self.valid = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
        self.masks = np.ones((*shape, actions.num_choices), np.bool_) if masked else None
        self.finals: list[Final] = []
        self.episodes: list[Episode] = []

    def rows(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Columns [T, N, ...] as rows [B, ...], without idle ones."""
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
        if self.valid.all():
            return flat
        kept = np.flatnonzero(self.valid)
        return {name: column[kept] for name, column in flat.items()}


class Collector:
    """Plays in the environments, and normalises what comes of it.

    The mean and variance of observations are taken in after each rollout, so that all of its values are of one scale;
    in the first one, where nothing is known yet, after each step.

    Args:
        environments: not yet reset.
        num_steps: T of each rollout.
        gamma: discount, for the scale of returns.
        normalise_observations, normalise_rewards: whether.
        masked: whether the environments are asked which choices are allowed.
        seed: of the environments.
    """

    def __init__(
        self,
        environments: Environments,
        num_steps: int,
        *,
        gamma: float,
        normalise_observations: bool,
        normalise_rewards: bool,
        masked: bool = False,
        seed: int,
    ) -> None:
        self._environments = environments
        self.num_steps = num_steps
        layout, number = environments.observations, environments.num_envs
        self.rollout = Rollout(num_steps, number, layout, environments.actions, masked=masked)
        self.normaliser = Normaliser(layout.size) if normalise_observations else None
        self._scale = ReturnScale(number, gamma) if normalise_rewards else None
        self._raw = np.zeros((num_steps, number, layout.size), np.float32) if normalise_observations else None
        self._starts = np.ones(number, np.bool_)
        self._now = environments.reset(seed)

    def collect(self, actor: Actor) -> Rollout:
        """T steps; the arrays of the last rollout are overwritten."""
        rollout, environments = self.rollout, self._environments
        rollout.finals, rollout.episodes = [], []
        rollout.valid.fill(True)
        live = self.normaliser is not None and self.normaliser.moments.count == 0
        rollout.observations[0] = self._seen(self._now, live)
        actor.begin(self.num_steps, environments.num_envs)
        for t in range(self.num_steps):
            masks = None
            if rollout.masks is not None:
                masks = rollout.masks[t]
                masks[...] = self._allowed()
            rollout.starts[t] = self._starts
            if self._raw is not None:
                self._raw[t] = self._now
            drawn, taken = actor.act(rollout.observations[t], self._starts, masks)
            rollout.actions[t] = drawn
            step = environments.step(taken)
            self._now = step.observations
            rollout.observations[t + 1] = self._seen(step.observations, live)
            self._record(rollout, t, step)
        if self.normaliser is not None and self._raw is not None and not live:
            self.normaliser.moments.update(self._raw[rollout.valid])
        return rollout

    def _record(self, rollout: Rollout, t: int, step: Step) -> None:
        rollout.terminated[t], rollout.truncated[t] = step.terminated, step.truncated
        over = np.logical_or(step.terminated, step.truncated)
        if self._scale is not None:
            rollout.rewards[t] = self._scale(step.rewards, over, step.idle)
        else:
            rollout.rewards[t] = step.rewards
        self._starts = over
        if step.idle is not None:
            np.logical_not(step.idle, out=rollout.valid[t])
            self._starts = over | step.idle
        if step.episodes:
            rollout.episodes.extend(step.episodes)
        if step.finals is not None:
            rows = np.flatnonzero(step.truncated & ~step.terminated)
            if len(rows):
                rollout.finals.append(Final(t, rows, self._seen(step.finals[rows], False)))

    def _seen(self, raw: Array, live: bool) -> Array:
        if self.normaliser is None:
            return raw
        if live:
            self.normaliser.moments.update(raw)
        return self.normaliser(raw)

    def _allowed(self) -> Array:
        masks = self._environments.action_masks()
        if masks is None:
            raise GalleyError(
                "environment-unsupported",
                "the environment does not say which choices are allowed",
                hint="give it a method action_masks(), or use method ppo",
            )
        return masks

    def state(self) -> dict[str, Any]:
        """Environments, normalisation, and where episodes begin."""
        import torch

        return {
            "environments": self._environments.state(),
            "starts": torch.from_numpy(self._starts.copy()),
            "observations": None if self.normaliser is None else self.normaliser.moments.state(),
            "rewards": None if self._scale is None else self._scale.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._now = self._environments.load_state(state["environments"])
        self._starts = state["starts"].numpy().copy()
        if self.normaliser is not None:
            self.normaliser.moments.load_state(state["observations"])
        if self._scale is not None:
            self._scale.load_state(state["rewards"])


def advantages(rollout: Rollout, values: Array, final_values: list[Array], *, gamma: float, gae_lambda: float) -> Array:
    """Generalised advantage estimation, [T, N].

    An episode that terminated is worth nothing more. One that was cut off is worth the value of its last observation;
    either way nothing of the next episode flows back over its end.

    Args:
        rollout: T steps.
        values: of `rollout.observations`, [T + 1, N].
        final_values: of each of `rollout.finals`.
        gamma: discount.
        gae_lambda: 0 looks one step ahead, 1 to the end of the rollout.

    Source: Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16; Pardo et al. 2018 on time limits.
    """
    following = values[1:]
    if rollout.finals:
        following = following.copy()
        for final, value in zip(rollout.finals, final_values, strict=True):
            following[final.step, final.rows] = value
    found: Array = np.where(rollout.terminated, np.float32(0), following * np.float32(gamma))
    found += rollout.rewards
    found -= values[:-1]
    going_on = ~(rollout.terminated | rollout.truncated)
    decay = going_on * np.float32(gamma * gae_lambda)
    for t in range(len(found) - 2, -1, -1):
        found[t] += decay[t] * found[t + 1]
    return found


def minibatches(rows: Mapping[str, Array], batch_size: int, random: np.random.Generator) -> Iterator[dict[str, Array]]:
    """All rows once, in random order, in pieces of nearly equal size.

    Idle rows make the number of rows vary; a last piece of a few rows would be noise. When there is one piece only,
    its order does not matter and stays.

    Args:
        rows: columns of B rows each.
        batch_size: wanted rows of a piece.
        random: of the order.
    """
    number = len(next(iter(rows.values())))
    pieces = max(1, round(number / batch_size))
    if pieces == 1:
        yield dict(rows)
        return
    for chosen in np.array_split(random.permutation(number), pieces):
        yield {name: column.take(chosen, axis=0) for name, column in rows.items()}


def standardised(values: Array) -> Array:
    """Shifted and scaled to mean 0 and (sample) standard deviation 1; a single value stays as it is."""
    if len(values) < 2:
        return values
    centred: Array = values - np.add.reduce(values) / np.float32(len(values))
    centred /= np.sqrt(np.dot(centred, centred) / np.float32(len(values) - 1)) + np.float32(1e-8)
    return centred


def explained_variance(values: Array, returns: Array) -> float:
    """1 - Var(returns - values) / Var(returns): 1 is perfect, 0 no better than a constant; NaN for equal returns."""
    variance = float(np.var(returns))
    return float("nan") if variance == 0 else 1.0 - float(np.var(returns - values)) / variance
