"""What a step will need: memory of the fullest device, and time, as ranges with their parts."""

from __future__ import annotations

from dataclasses import dataclass

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.memory_model import MemoryEstimate, estimate_memory
from galley.plan.software import GALLEY, Software
from galley.plan.stages import refusal
from galley.plan.time_model import TimeEstimate, estimate_time
from galley.plan.types import Hardware
from galley.plan.workload import Workload


@dataclass(frozen=True)
class Prediction:
    """What is expected of a step.

    Args:
        memory: of the fullest device, and of the first.
        time: of a step.
        fits: whether the engine would start, and the likely memory of the fullest device is there.
        refused: why the engine would not start, whatever the memory; empty where it would.
    """

    memory: MemoryEstimate
    time: TimeEstimate
    fits: bool
    refused: str = ""


def predict(
    architecture: Architecture,
    workload: Workload,
    layout: Layout,
    hardware: Hardware,
    software: Software = GALLEY,
) -> Prediction:
    """Predict memory and time of one optimiser step.

    Args:
        architecture: the model.
        workload: what a step computes.
        layout: how it is split.
        hardware: of which `layout.world` devices are used.
        software: what the engine keeps and how well it overlaps.
    """
    memory = estimate_memory(architecture, workload, layout, hardware, software)
    time = estimate_time(architecture, workload, layout, hardware, software)
    refused = refusal(architecture, layout, workload.micro_batches(layout.data), software)
    return Prediction(memory, time, not refused and memory.fullest.needed <= hardware.memory_bytes, refused)
