"""The arrays that a process of environments and its parent both see: one unnamed file, mapped into both.

The file has no name from the start, so that nothing is left behind however either side ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]

_ALIGNMENT = 64


def unnamed_file() -> int:
    """A file descriptor of an empty file without a name, in memory where there is such a place."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


@dataclass(frozen=True)
class Shared:
    """What is exchanged at each step, by rows of copies.

    Args:
        actions: [N] int64 or [N, A] as `ActionLayout` says; the parent writes, the others are written by workers.
        observations, finals: [N, D]; rows of `finals` count where an episode ended.
        rewards, terminated, truncated: [N].
        reported: [N] bool, where an episode is reported with the numbers in `returns` and `lengths`.
        masks: [N, M] bool; M is 0 when there are none.
        acting: [W] int64, the copy that each worker is busy with.
    """

    actions: Array
    observations: Array
    finals: Array
    rewards: Array
    terminated: Array
    truncated: Array
    reported: Array
    returns: Array
    lengths: Array
    masks: Array
    acting: Array


@dataclass(frozen=True)
class Sizes:
    """What the arrays' shapes follow from.

    Args:
        num_envs: N.
        workers: W.
        observations, actions: layouts.
        masked: whether there are action masks.
    """

    num_envs: int
    workers: int
    observations: ObservationLayout
    actions: ActionLayout
    masked: bool

    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and type of each array of `Shared`."""
        rows = (self.num_envs,)
        wide = (self.num_envs, self.observations.size)
        seen = np.dtype(self.observations.dtype)
        parts = rows if self.actions.kind == "discrete" else (self.num_envs, self.actions.size)
        chosen = np.dtype(np.float32 if self.actions.kind == "box" else np.int64)
        real, flag, whole = np.dtype(np.float64), np.dtype(np.bool_), np.dtype(np.int64)
        return {
            "actions": (parts, chosen),
            "observations": (wide, seen),
            "finals": (wide, seen),
            "rewards": (rows, np.dtype(np.float32)),
            "terminated": (rows, flag),
            "truncated": (rows, flag),
            "reported": (rows, flag),
            "returns": (rows, real),
            "lengths": (rows, whole),
            "masks": ((self.num_envs, self.actions.num_choices if self.masked else 0), flag),
            "acting": ((self.workers,), whole),
        }

    def num_bytes(self) -> int:
        """Of all arrays together."""
        return sum(_padded(shape, dtype) for shape, dtype in self.arrays().values())

    def map(self, descriptor: int) -> Shared:
        """The arrays over a file that is at least `num_bytes` long."""
        memory = mmap.mmap(descriptor, self.num_bytes())
        views, start = {}, 0
        for name, (shape, dtype) in self.arrays().items():
            count = int(np.prod(shape))
            views[name] = np.frombuffer(memory, dtype, count, start).reshape(shape)
            start += _padded(shape, dtype)
        return Shared(**views)


def _padded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array, up to the next cache line, so that no two arrays share one."""
    return -(-max(1, int(np.prod(shape)) * dtype.itemsize) // _ALIGNMENT) * _ALIGNMENT
