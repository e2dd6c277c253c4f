"""The last n steps of every copy, until their n-step returns are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from galley.data.environments import Step
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]


class Windows:
    """Rows that wait: a step's return is whole after n steps, or when its episode ends.

    Args:
        num_envs: N copies.
        n_step: n, two or more.
        observations, actions: layouts.
        gamma: discount of one step.

    Source: Sutton 1988; as in Hessel et al. 2018, "Rainbow", https://arxiv.org/abs/1710.02298.
    """

    def __init__(
        self, num_envs: int, n_step: int, observations: ObservationLayout, actions: ActionLayout, *, gamma: float
    ) -> None:
        self._n = n_step
        self._powers = gamma ** np.arange(n_step + 1)
        discrete = actions.kind == "discrete"
        self._observations = np.zeros((num_envs, n_step, observations.size), observations.dtype)
        self._actions = np.zeros(
            (num_envs, n_step, *(() if discrete else (actions.size,))),
            np.float32 if actions.kind == "box" else np.int64,
        )
        self._rewards = np.zeros((num_envs, n_step), np.float64)
        self._waiting = np.zeros(num_envs, np.int64)

    def add(self, observations: Array, actions: Array, step: Step) -> tuple[Array, ...] | None:
        """Take in a step of each copy.

        Returns:
            Rows that are complete now: observations, actions, returns, successors, discounts; None when there are none.
        """
        ended = step.terminated | step.truncated
        successors = step.successors
        done: list[tuple[Array, Array, Array, Array, Array]] = []
        for copy in range(len(observations)):
            if step.idle is not None and step.idle[copy]:
                continue
            at = int(self._waiting[copy])
            self._observations[copy, at] = observations[copy]
            self._actions[copy, at] = actions[copy]
            self._rewards[copy, at] = step.rewards[copy]
            at += 1
            if ended[copy]:
                done.append(self._rows(copy, at, at, successors[copy], bool(step.terminated[copy])))
                at = 0
            elif at == self._n:
                done.append(self._rows(copy, 1, at, successors[copy], False))
                for kept in (self._observations, self._actions, self._rewards):
                    kept[copy, :-1] = kept[copy, 1:].copy()
                at -= 1
            self._waiting[copy] = at
        if not done:
            return None
        return tuple(np.concatenate(column) for column in zip(*done, strict=True))

    def _rows(
        self, copy: int, number: int, waiting: int, successor: Array, terminated: bool
    ) -> tuple[Array, Array, Array, Array, Array]:
        """The oldest rows of a copy, which all lead to this successor."""
        rewards = self._rewards[copy, :waiting]
        returns = [float(rewards[start:] @ self._powers[: waiting - start]) for start in range(number)]
        discounts = np.zeros(number) if terminated else self._powers[waiting - np.arange(number)]
        return (
            self._observations[copy, :number].copy(),
            self._actions[copy, :number].copy(),
            np.asarray(returns, np.float32),
            np.repeat(successor[None], number, axis=0),
            discounts.astype(np.float32),
        )

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        import torch

        return {name: torch.from_numpy(kept.copy()) for name, kept in self._kept().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        for name, kept in self._kept().items():
            kept[...] = state[name].numpy()

    def _kept(self) -> dict[str, Array]:
        return {
            "observations": self._observations,
            "actions": self._actions,
            "rewards": self._rewards,
            "waiting": self._waiting,
        }

    @staticmethod
    def num_bytes(num_envs: int, n_step: int, observations: ObservationLayout, actions: ActionLayout) -> int:
        """Bytes of the rows that wait."""
        row = observations.size * np.dtype(observations.dtype).itemsize
        row += actions.size * (4 if actions.kind == "box" else 8) + 8
        return num_envs * (n_step * row + 8)
