"""The processes of one job: who am I, and what do we agree on. Alone, everything is free and nothing is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TIMEOUT = timedelta(minutes=10)
"""A collective that takes longer means that a process died or hangs."""
_BUCKET_NUMBERS = 8 << 20
"""Numbers that are summed in one collective, at most."""


@dataclass(frozen=True)
class Group:
    """The processes that train together.

    Args:
        rank: of this one, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether it is true in any process."""
        return self.sum([float(flag)])[0] > 0 if self.size > 1 else flag

    def wait(self) -> None:
        """Until all processes are here."""
        self.any(False)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sums over the processes; all give as many numbers."""
        if self.size == 1:
            return list(numbers)
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sum_named(self, numbers: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Pairs summed by name; a process need not have them all."""
        if self.size == 1:
            return dict(numbers)
        import torch.distributed as dist

        everyone: list[Mapping[str, tuple[float, float]] | None] = [None] * self.size
        dist.all_gather_object(everyone, dict(numbers))
        total: dict[str, tuple[float, float]] = {}
        for part in everyone:
            for name, (value, count) in (part or {}).items():
                before = total.get(name, (0.0, 0.0))
                total[name] = (before[0] + value, before[1] + count)
        return total

    def share(self, value: Any) -> Any:
        """What the first process has."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors in place over the processes: many small ones travel as one."""
        if self.size == 1:
            return
        import torch.distributed as dist
        from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

        for bucket in _buckets(tensors):
            flat = _flatten_dense_tensors(bucket)  # type: ignore[no-untyped-call]
            dist.all_reduce(flat)
            pieces = _unflatten_dense_tensors(flat, bucket)  # type: ignore[no-untyped-call]
            for tensor, summed in zip(bucket, pieces, strict=True):
                tensor.copy_(summed)


ALONE = Group()


def join(backend: str = "gloo") -> Group:
    """The group that the launcher's environment variables name (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ALONE
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group(backend, timeout=TIMEOUT)
    return Group(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """End the group, where there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Neighbours of one kind of number, up to a size."""
    found: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        if not found or room < tensor.numel() or found[-1][0].dtype != tensor.dtype:
            found.append([])
            room = _BUCKET_NUMBERS
        found[-1].append(tensor)
        room -= tensor.numel()
    return found
