"""What an engine keeps in memory and hides behind arithmetic: the habits by which programs differ on the same plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Software:
    """An engine's habits.

    Args:
        name: of the engine.
        keeps_gathered: with sequence parallelism, the gathered inputs of split products are kept for the backward pass.
        logit_bytes: of a logit, with its gradient and copies, where the loss is not fused.
        runtime_bytes: context, kernels and communicators of a device.
        fragmentation: reserved over allocated memory.
        reports_reserved: whether the figure it prints is of reserved memory, else of allocated.
        overlaps_data: share of the copies' exchange that is hidden behind the backward pass.
        launch_seconds: least time of a layer's pass, in which its kernels are started.
    """

    name: str
    keeps_gathered: bool = False
    logit_bytes: float = 8.0
    runtime_bytes: float = 0.9e9
    fragmentation: float = 1.04
    reports_reserved: bool = False
    overlaps_data: float = 0.8
    launch_seconds: float = 0.0


GALLEY = Software(name="galley")
NANOTRON = Software(name="nanotron")
MEGATRON = Software(name="megatron")
FSDP = Software(name="fsdp")
TRANSFORMERS = Software(name="transformers")
