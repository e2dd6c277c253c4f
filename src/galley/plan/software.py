"""What an engine keeps in memory and hides behind arithmetic: the habits by which programs differ on the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Software:
    """An engine's habits.

    Args:
        name: of the engine.
        keeps_gathered: with sequence parallelism, the gathered inputs of split products are kept for the backward pass:
            never, where the model is one stage, or always.
        gather_copies: buffers of whole, unsplit hidden states that tensor parallelism needs at once.
        copy_bytes: of a hidden number, kept by every layer beside what its operations need: casts, views that hold on
            to a whole fused projection, and what the allocator loses on them.
        adapter_input_bytes: of each number that enters an adapter (a float32 cast, a dropout's output).
        logit_bytes: of a logit, with its gradient and copies, where the loss is not fused.
        bucket_bytes: of each weight that learns, in buffers for the exchange between copies.
        balances_head: stages get equal work with the output head counted, else equally many layers.
        runtime_bytes: context, kernels and communicators of a device, outside the allocator.
        workspace_bytes: of the allocator, whatever the model.
        fragmentation: reserved over allocated memory.
        reports_reserved: whether the figure it prints is of reserved memory, else of allocated.
        overlaps_data: share of the copies' exchange that is hidden behind the backward pass.
        launch_seconds: least time of a layer's pass, in which its kernels are started.
    """

    name: str
    keeps_gathered: Literal["never", "one-stage", "always"] = "never"
    gather_copies: float = 2.0
    copy_bytes: float = 0.0
    adapter_input_bytes: float = 2.0
    logit_bytes: float = 10.0
    bucket_bytes: float = 0.0
    balances_head: bool = False
    runtime_bytes: float = 0.9e9
    workspace_bytes: float = 0.2e9
    fragmentation: float = 1.04
    reports_reserved: bool = False
    overlaps_data: float = 0.8
    launch_seconds: float = 0.0


GALLEY = Software(name="galley")
NANOTRON = Software(
    name="nanotron",
    keeps_gathered="one-stage",
    copy_bytes=8.8,
    bucket_bytes=2.0,
    balances_head=True,
)
MEGATRON = Software(name="megatron")
FSDP = Software(name="fsdp")
TRANSFORMERS = Software(name="transformers")
