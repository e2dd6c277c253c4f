"""How a training is laid out over devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Recompute = Literal["none", "selective", "full"]
"""`selective`: the core of attention is computed again; `full`: of each layer only the input is kept."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ways of splitting the work; their product over `world` devices.

    Args:
        tensor: devices that share each matrix product.
        pipeline: stages, each with a part of the layers.
        data: copies of the model, each with its own rows.
        context: devices that share each sequence.
        expert: devices that share the experts; they are taken from `data` (and `context`), and not counted in `world`.
        virtual: pieces of the model on each stage; more than 1 is an interleaved schedule.
        zero: what the copies share: 0 nothing, 1 optimiser states, 2 gradients too, 3 weights too (FSDP).
        shards: devices among which that is shared, where it is fewer than `data x context` (HSDP); 0 for all.
        sequence_parallel: norms and residuals are split over `tensor` as well.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    virtual: int = 1
    zero: Literal[0, 1, 2, 3] = 0
    shards: int = 0
    sequence_parallel: bool = True

    @property
    def world(self) -> int:
        """Devices."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def sharded_over(self) -> int:
        """Devices among which states are shared."""
        return 1 if self.zero == 0 else self.shards or self.data * self.context

    def __str__(self) -> str:
        ways = (
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("context", self.context),
            ("expert", self.expert),
            ("data", self.data),
        )
        named = [f"{name} {count}" for name, count in ways if count > 1]
        return " x ".join(named or ["1 device"]) + (f", ZeRO-{self.zero}" if self.zero else "")
