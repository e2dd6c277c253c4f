"""Time of a step: arithmetic by roofline, communication, pipeline bubble, optimiser; part by part."""

from __future__ import annotations

from dataclasses import dataclass, field

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.types import Hardware
from galley.plan.workload import Workload

_SPREAD = (0.85, 1.25)


@dataclass(frozen=True)
class TimeEstimate:
    """Of one optimiser step.

    Args:
        tokens: of the step, over all devices.
        model_flops: of the step: 6 a parameter and token and those of causal attention, without recomputation.
        peak_flops: of all devices, a second.
        devices: of the layout.
        parts: seconds by part, as exposed: products, other, tensor, pipeline, data, optimizer, offload, launch, ...
    """

    tokens: float
    model_flops: float
    peak_flops: float
    devices: int
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Likely."""
        return sum(self.parts.values())

    @property
    def range(self) -> tuple[float, float, float]:
        """Low, likely and high seconds."""
        return self.seconds * _SPREAD[0], self.seconds, self.seconds * _SPREAD[1]

    @property
    def tokens_per_second(self) -> float:
        """Of all devices."""
        return self.tokens / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, 0 to 1."""
        return self.model_flops / (self.seconds * self.peak_flops) if self.peak_flops else 0.0


def estimate_time(
    architecture: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software
) -> TimeEstimate:
    """Time of a step."""
    tokens = float(workload.global_batch * workload.sequence)
    flops = 3 * tokens * architecture.forward_flops(workload.sequence)
    peak = hardware.tflops.get(str(workload.precision), max(hardware.tflops.values(), default=0.1)) * 1e12
    return TimeEstimate(
        tokens, flops, peak * layout.world, layout.world, {"products": flops / (0.45 * peak * layout.world)}
    )
