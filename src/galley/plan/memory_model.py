"""Memory of every device of a layout: what is kept, part by part, and when it is most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.types import Hardware
from galley.plan.workload import Workload

_MOMENTS = {"adamw": 8.0, "adamw-8bit": 2.0, "adafactor": 0.1, "muon": 4.0, "sgd": 4.0}
_SPREAD = (0.92, 1.12)
_NF4_BYTES = 0.53


@dataclass(frozen=True)
class DeviceMemory:
    """Of one device at the fullest moment of a step.

    Args:
        stage: of the pipeline, from 0.
        parts: bytes by part.
        low, likely, high: of the sum.
    """

    stage: int
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def likely(self) -> float:
        """Bytes."""
        return sum(self.parts.values())

    @property
    def low(self) -> float:
        """Bytes, at least."""
        return self.likely * _SPREAD[0]

    @property
    def high(self) -> float:
        """Bytes, at most."""
        return self.likely * _SPREAD[1]


@dataclass(frozen=True)
class MemoryEstimate:
    """Of all stages.

    Args:
        stages: one device of each.
    """

    stages: tuple[DeviceMemory, ...]

    @property
    def first(self) -> DeviceMemory:
        """Of the first stage, which most programs print."""
        return self.stages[0]

    @property
    def fullest(self) -> DeviceMemory:
        """Of the stage that decides whether it fits."""
        return max(self.stages, key=lambda stage: stage.likely)


def estimate_memory(
    architecture: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software
) -> MemoryEstimate:
    """Memory of a step."""
    stages = range(layout.pipeline) if layout.pipeline <= 4 else (0, 1, layout.pipeline - 1)
    return MemoryEstimate(
        tuple(_stage(architecture, workload, layout, hardware, software, stage) for stage in stages)
    )


def _stage(
    a: Architecture, w: Workload, layout: Layout, hardware: Hardware, software: Software, stage: int
) -> DeviceMemory:
    pipeline, tensor = layout.pipeline, layout.tensor
    layers = math.ceil(a.layers / pipeline)
    tokens = w.sequence * w.micro_batch / layout.context
    parameters = layers * a.dense_layer_parameters / tensor
    if stage == 0:
        parameters += a.embedding_parameters / tensor
    if stage == pipeline - 1 and not (a.tied and pipeline == 1):
        parameters += a.embedding_parameters / tensor
    share = layout.sharded_over
    base = 2.0
    moments = _MOMENTS[w.optimizer] if w.moment_bytes is None else w.moment_bytes
    in_flight = min(pipeline - stage, w.micro_batches(layout.data))
    layer = tokens * (16 * a.hidden + 8 * a.ffn) / tensor
    logits = software.logit_bytes * tokens * a.vocab / tensor if stage == pipeline - 1 and not w.fused_loss else 0.0
    return DeviceMemory(
        stage,
        {
            "weights": parameters * base / (share if layout.zero >= 3 else 1),
            "gradients": parameters * w.gradient_bytes / (share if layout.zero >= 2 else 1),
            "optimizer": parameters * (w.master_bytes + moments) / (share if layout.zero >= 1 else 1),
            "activations": layers * layer * in_flight,
            "logits": logits,
            "runtime": software.runtime_bytes,
        },
    )
