"""Replay memory of off-policy methods: transitions in preallocated arrays, n-step returns, proportional priorities.

Shapes: N copies of the environment, B rows of a minibatch, G minibatches, D numbers of an observation, A parts of an
action, n steps of a return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base.generators import generator_state, load_generator
from galley.methods.control.sum_tree import SumTree
from galley.methods.control.windows import Windows

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments import Step
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]

_SMALLEST_ERROR = 1e-6
"""Added to errors, so that no row is never seen again (Schaul et al. 2016, section 3.3)."""


class ReplayMemory:
    """The last `capacity` transitions of all copies; a row that is added replaces the oldest.

    A row is whole: what was seen, done and gained in up to n steps, and what came of it. Successors are stored, not
    looked up in the next row, so that the last observation of an episode that was cut off is exact, and rows need no
    order. With n > 1 a row is added once its n steps are known or its episode has ended.

    Args:
        capacity: rows.
        num_envs: N.
        observations, actions: layouts; uint8 observations are stored as uint8.
        gamma: discount of one step.
        n_step: n, rewards that are summed up before the bootstrap; never over the end of an episode.
        priority_exponent: alpha; rows are sampled in proportion to |error|^alpha, 0 samples them uniformly.
        seed: of the sampling.

    Source: Schaul et al. 2016, "Prioritized Experience Replay", https://arxiv.org/abs/1511.05952.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        observations: ObservationLayout,
        actions: ActionLayout,
        *,
        gamma: float,
        n_step: int = 1,
        priority_exponent: float = 0.0,
        seed: int,
    ) -> None:
        self.capacity = capacity
        self._alpha = priority_exponent
        self._gamma = gamma
        self._columns = {
            name: np.zeros((capacity, *shape), dtype)
            for name, (shape, dtype) in _columns(observations, actions).items()
        }
        self._windows = Windows(num_envs, n_step, observations, actions, gamma=gamma) if n_step > 1 else None
        self._tree = SumTree(capacity) if priority_exponent else None
        self._highest = 1.0
        self._next = 0
        self._size = 0
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return self._size

    def add(self, observations: Array, actions: Array, step: Step) -> None:
        """Store what one action in each copy led to; idle rows are left out.

        Args:
            observations: what was acted on, [N, D].
            actions: [N] for discrete spaces, [N, A] else.
            step: what came of it.
        """
        if self._windows is not None:
            rows = self._windows.add(observations, actions, step)
            if rows is None:
                return
        else:
            discounts = np.where(step.terminated, np.float32(0), np.float32(self._gamma))
            rows = (observations, actions, step.rewards, step.successors, discounts)
            if step.idle is not None:
                played = ~step.idle
                rows = tuple(row[played] for row in rows)
        self._append(rows)

    def sample(self, batch_size: int, importance_exponent: float = 1.0) -> dict[str, Tensor]:
        """A minibatch, drawn with replacement.

        Args:
            batch_size: B.
            importance_exponent: beta; how much the weights make up for unequal sampling.

        Returns:
            `observations` and `successors` [B, D], `actions` [B] or [B, A], `rewards` [B] (discounted sum of up to n),
            `discounts` [B] (of the successor's value: 0 where the episode terminated, else gamma^k after k steps),
            `weights` [B] (at most 1; all 1 when sampling is uniform) and `indices` [B] for `update_priorities`.

        Raises:
            ValueError: when the memory is empty.
        """
        return {name: rows[0] for name, rows in self.sample_many(batch_size, 1, importance_exponent).items()}

    def sample_many(self, batch_size: int, count: int, importance_exponent: float = 1.0) -> dict[str, Tensor]:
        """`count` minibatches at once: as `sample`, each tensor with one more axis [G, B, ...] in front.

        The priorities are those of now for all of them.
        """
        import torch

        if not self._size:
            raise ValueError("the replay memory is empty")
        if self._tree is None:
            indices = self._random.integers(0, self._size, count * batch_size)
            weights = np.ones((count, batch_size), np.float32)
        else:
            indices = np.concatenate([self._tree.sample(batch_size, self._random) for _ in range(count)])
            shares = (self._tree.priorities(indices) / self._tree.total).reshape(count, batch_size)
            raw = (self._size * shares) ** -importance_exponent
            weights = (raw / raw.max(axis=1, keepdims=True)).astype(np.float32)
        batch = {
            name: column.take(indices, axis=0).reshape(count, batch_size, *column.shape[1:])
            for name, column in self._columns.items()
        }
        batch |= {"weights": weights, "indices": indices.reshape(count, batch_size)}
        return {name: torch.from_numpy(rows) for name, rows in batch.items()}

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """Give rows the priority of their new errors.

        Args:
            indices: from a minibatch, [B]; where one stands twice the last counts.
            errors: [B], of any sign.
        """
        if self._tree is None:
            return
        sizes = np.abs(errors.detach().cpu().numpy().astype(np.float64)) + _SMALLEST_ERROR
        priorities = sizes**self._alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._tree.set(indices.cpu().numpy(), priorities)

    def state(self) -> dict[str, Any]:
        """All that `load_state` needs; tensors share the memory's own, so that a checkpoint needs no second copy.

        Save it, or copy it, before anything else is added.
        """
        import torch

        kept = {name: torch.from_numpy(column[: self._size]) for name, column in self._columns.items()}
        if self._tree is not None:
            kept["priorities"] = torch.from_numpy(self._tree.priorities(np.arange(self._size)))
        return {
            "rows": kept,
            "next": self._next,
            "size": self._size,
            "highest": self._highest,
            "windows": {} if self._windows is None else self._windows.state(),
            "random": generator_state(self._random),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken, in a memory made with the same arguments."""
        self._next, self._size, self._highest = state["next"], state["size"], state["highest"]
        for name, column in self._columns.items():
            column[: self._size] = state["rows"][name].numpy()
        if self._tree is not None:
            self._tree.fill(state["rows"]["priorities"].numpy())
        if self._windows is not None:
            self._windows.load_state(state["windows"])
        load_generator(self._random, state["random"])

    def _append(self, rows: tuple[Array, ...]) -> None:
        number = len(rows[0])
        place: Any
        if self._next + number <= self.capacity:
            place = slice(self._next, self._next + number)
        else:
            place = np.arange(self._next, self._next + number) % self.capacity
        for column, row in zip(self._columns.values(), rows, strict=True):
            column[place] = row
        if self._tree is not None:
            indices = np.arange(self._next, self._next + number) % self.capacity
            self._tree.set(indices, np.full(number, self._highest))
        self._next = (self._next + number) % self.capacity
        self._size = min(self._size + number, self.capacity)


def num_bytes(
    capacity: int,
    num_envs: int,
    observations: ObservationLayout,
    actions: ActionLayout,
    *,
    n_step: int = 1,
    priority_exponent: float = 0.0,
) -> int:
    """Bytes that a full memory of these arguments takes, known before anything is made."""
    columns = _columns(observations, actions)
    row = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in columns.values())
    windows = Windows.num_bytes(num_envs, n_step, observations, actions) if n_step > 1 else 0
    return capacity * row + windows + (SumTree.num_bytes(capacity) if priority_exponent else 0)


def _columns(observations: ObservationLayout, actions: ActionLayout) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of one row of each column, in the order in which rows are added."""
    return {
        "observations": ((observations.size,), observations.dtype),
        "actions": ((), "int64") if actions.kind == "discrete" else ((actions.size,), action_dtype(actions)),
        "rewards": ((), "float32"),
        "successors": ((observations.size,), observations.dtype),
        "discounts": ((), "float32"),
    }


def action_dtype(actions: ActionLayout) -> str:
    """Type of an action array."""
    return "float32" if actions.kind == "box" else "int64"
