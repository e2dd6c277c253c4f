"""A binary tree of sums, by which rows are drawn in proportion to their priorities in logarithmic time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class SumTree:
    """Priorities in the leaves, and in every other node the sum of its two children.

    Sums are taken anew from the children at every change, so that nothing drifts, and a tree made of the same
    priorities is the same to the last bit.

    Args:
        capacity: leaves that are used; their number is rounded up to a power of two.

    Source: Schaul et al. 2016, appendix B.2.1.
    """

    def __init__(self, capacity: int) -> None:
        self._levels = max(1, (capacity - 1).bit_length())
        self._leaves = 1 << self._levels
        self._nodes = np.zeros(2 * self._leaves, np.float64)

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._nodes[1])

    def priorities(self, indices: Array) -> Array:
        """Of rows."""
        found: Array = self._nodes[self._leaves + indices]
        return found

    def set(self, indices: Array, priorities: Array) -> None:
        """Change rows, [B]; where one stands twice the last counts."""
        nodes = self._leaves + indices
        self._nodes[nodes] = priorities
        for _ in range(self._levels):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def fill(self, priorities: Array) -> None:
        """Set the first rows, and all others to 0."""
        self._nodes[:] = 0.0
        self._nodes[self._leaves : self._leaves + len(priorities)] = priorities
        start = self._leaves
        while start > 1:
            pairs = self._nodes[start : 2 * start].reshape(-1, 2)
            start //= 2
            self._nodes[start : 2 * start] = pairs[:, 0] + pairs[:, 1]

    def sample(self, number: int, random: np.random.Generator) -> Array:
        """Rows in proportion to their priorities, [B]: one from each of B equal shares of the total.

        Rows of priority 0 are never drawn.
        """
        rest = (np.arange(number) + random.random(number)) * (self._nodes[1] / number)
        nodes = np.ones(number, np.int64)
        for _ in range(self._levels):
            left, right = self._nodes[2 * nodes], self._nodes[2 * nodes + 1]
            goes_right = (rest >= left) & (right > 0)  # rounding must not lead to an empty side
            rest = np.where(goes_right, rest - left, rest)
            nodes = 2 * nodes + goes_right
        return nodes - self._leaves

    @staticmethod
    def num_bytes(capacity: int) -> int:
        """Bytes of a tree."""
        return 2 * (1 << max(1, (capacity - 1).bit_length())) * 8
