"""Time of a step: arithmetic by roofline, communication, pipeline bubble, optimiser; part by part."""

from __future__ import annotations

from dataclasses import dataclass, field

from galley.plan.architecture import Architecture
from galley.plan.collectives import group_of
from galley.plan.layer_time import MEMORY_EFFICIENCY, LayerTime, head_time, layer_time, peak_flops, recomputed_share
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.stages import Stage, stages_of
from galley.plan.states import learned_parameters
from galley.plan.types import Hardware
from galley.plan.workload import Workload

_SPREAD = (0.85, 1.25)
OPTIMIZER_BYTES = 30.0
"""Read and written for each weight that learns by AdamW with a float32 copy: 4 x 3 states twice, gradient, weight."""
HOST_ADAM_BYTES = 28.0
HOST_MEMORY_GBPS = 100.0
"""Of a node's processors, that an optimiser on the host reaches."""
HOST_EFFICIENCY = 0.8
_HIDES = 0.9
"""Share of a step's arithmetic behind which traffic can be hidden."""
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class TimeEstimate:
    """Of one optimiser step.

    Args:
        tokens: of the step, over all devices.
        model_flops: of the step: 6 a parameter and token and those of causal attention, without recomputation.
        peak_flops: of all devices, a second.
        devices: of the layout.
        parts: seconds by part, as exposed: products, attention, other, tensor, context, expert, dequantise, head,
            launch, pipeline, data, optimizer, offload.
        watts: that one device draws at most.
    """

    tokens: float
    model_flops: float
    peak_flops: float
    devices: int
    parts: dict[str, float] = field(default_factory=dict)
    watts: float = 0.0

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

    @property
    def kilowatt_hours(self) -> float:
        """Of the step, with all devices at their most; without hosts, network and cooling."""
        return self.watts * self.devices * self.seconds / _JOULES_PER_KWH

    def cost(self, price: float) -> float:
        """Of the step, for a price of one device and hour."""
        return price * self.devices * self.seconds / 3600


def estimate_time(
    architecture: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software
) -> TimeEstimate:
    """Time of a step."""
    a = architecture
    count = workload.micro_batches(layout.data)
    plain = layer_time(a, workload, layout, hardware, software, experts=False)
    mixed = layer_time(a, workload, layout, hardware, software, experts=True) if a.experts else plain
    head = head_time(a, workload, layout, hardware).seconds
    least = launch_seconds(a, workload, layout, hardware, software)
    dense, routed = a.layers - a.expert_layers, a.expert_layers
    each = (dense * max(plain.seconds, least) + routed * max(mixed.seconds, least)) / a.layers

    stages = stages_of(a, layout, count, balances_head=software.balances_head)
    slowest = max(_stage_seconds(stage, each, head) for stage in stages)
    handoff = _handoff_seconds(a, workload, layout, hardware, software)
    once = a.layers * each + head
    through = count * (slowest + handoff) + (once - slowest + (layout.pipeline - 1) * handoff) / layout.virtual

    share = count / layout.pipeline
    parts = _compute_parts(plain, mixed, dense * share, routed * share)
    busy = share * a.layers * each
    parts["launch"] = max(0.0, busy - sum(parts.values()))
    parts["head"] = head * share
    parts["pipeline"] = max(0.0, through - busy - head * share)
    backward = slowest * 2 / 3
    parts["data"] = _data_seconds(a, workload, layout, hardware, software, backward, through)
    parts["optimizer"], parts["offload"] = _update_seconds(a, workload, layout, hardware, software, through, count)
    extra = workload.frozen_models / 3 + workload.learning_models
    if extra:
        parts["models"] = extra * (sum(parts.values()) - parts["optimizer"] - parts["offload"])
    tokens = float(workload.global_batch * workload.sequence)
    return TimeEstimate(
        tokens=tokens,
        model_flops=3 * tokens * a.forward_flops(workload.sequence),
        peak_flops=peak_flops(hardware, str(workload.precision)) * layout.world,
        devices=layout.world,
        parts=parts,
        watts=hardware.watts,
    )


def launch_seconds(
    a: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software
) -> float:
    """Least time of a layer, forward and backward: its kernels are started one after the other, whatever their size."""
    least = max(software.launch_seconds, software.tensor_launch_seconds * layout.tensor)
    if layout.pipeline > 1 and layout.world > hardware.num_devices:
        least += software.crossing_launch_seconds * layout.tensor
    return least * (1 + recomputed_share(a, workload) / 3 if workload.recompute == "full" else 1.0)


def _stage_seconds(stage: Stage, layer: float, head: float) -> float:
    return stage.layers * layer + (head if stage.head else 0.0)


def _compute_parts(plain: LayerTime, mixed: LayerTime, dense: float, routed: float) -> dict[str, float]:
    """Seconds of a step by part, for so many passes of dense layers and of layers with experts."""
    names = ("products", "attention", "other", "tensor", "context", "expert", "dequantise")
    return {name: dense * getattr(plain, name) + routed * getattr(mixed, name) for name in names}


def _handoff_seconds(
    a: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software
) -> float:
    """Of a micro-batch between stages, there and back: hidden states and their gradients, for each piece."""
    if layout.pipeline == 1:
        return 0.0
    tokens = workload.sequence * workload.micro_batch / layout.context
    group = group_of(hardware, layout.pipeline, layout.world // layout.pipeline)
    speed = group.link if group.near >= group.size else min(group.link, group.adapter)
    sent = 2 * tokens * a.hidden / layout.tensor
    moved = 2 * layout.virtual * (sent / speed + group.hop_seconds)
    return software.handoff_seconds + (1 - software.overlaps_handoff) * moved


def _weights(a: Architecture, layout: Layout) -> tuple[float, float]:
    """Weights of a device, shared ones and experts, before they are split over copies."""
    experts = float(a.expert_layers * a.expert_parameters)
    common = (a.num_parameters - experts) / (layout.tensor * layout.pipeline)
    return common, experts / (layout.pipeline * max(1, layout.expert))


def _learning_share(a: Architecture, workload: Workload) -> float:
    """Of the weights that learn."""
    return min(1.0, learned_parameters(a, workload) / a.num_parameters)


def _data_seconds(
    a: Architecture,
    workload: Workload,
    layout: Layout,
    hardware: Hardware,
    software: Software,
    backward: float,
    through: float,
) -> float:
    """Exchange between copies that arithmetic does not hide: of gradients and weights once a step, and of FSDP."""
    copies = layout.data * layout.context
    if copies < 2:
        return 0.0
    count = workload.micro_batches(layout.data)
    common, experts = _weights(a, layout)
    group = group_of(hardware, copies, layout.tensor)
    learning = _learning_share(a, workload)
    grads = workload.gradient_bytes if software.reduces_fp32 else min(2.0, workload.gradient_bytes)
    held = 0.5 if workload.tuning == "qlora" else 2.0
    near = group_of(hardware, max(1, copies // max(1, layout.expert)), layout.tensor * layout.expert)

    def both(weight_bytes: float) -> float:
        return group.gather(common * weight_bytes) + (near.gather(experts * weight_bytes) if experts else 0.0)

    if layout.zero == 3:
        gathers = 2 * both(held) + both(grads * learning)
        busy = count * gathers
        return max((1 - software.overlaps_data) * busy, busy - _HIDES * through)
    reduced = both(grads * learning)
    times = count if layout.zero == 2 else 1
    gather = both(2.0 * learning) / software.gather_share if layout.zero else reduced
    hidden = software.overlaps_data * (reduced * times + (reduced if layout.zero == 0 else 0.0))
    whole = reduced * times + gather
    return whole - min(hidden, backward * times)


def _update_seconds(
    a: Architecture,
    workload: Workload,
    layout: Layout,
    hardware: Hardware,
    software: Software,
    through: float,
    count: int,
) -> tuple[float, float]:
    """Of the optimiser, and of the traffic to the host and its arithmetic there."""
    common, experts = _weights(a, layout)
    learning = (common + experts) * _learning_share(a, workload) / layout.sharded_over
    if layout.zero in (1, 2) and experts:
        learning = (common / layout.sharded_over + experts / max(1, layout.sharded_over // layout.expert)) * (
            _learning_share(a, workload)
        )
    host = (hardware.host_gbps or 10.0) * 1e9 * HOST_EFFICIENCY
    bandwidth = (hardware.memory_gbps or 50.0) * 1e9 * MEMORY_EFFICIENCY
    update, offload = learning * OPTIMIZER_BYTES / bandwidth + software.step_seconds, 0.0
    if workload.offload_optimizer:
        node = HOST_MEMORY_GBPS * 1e9 / min(hardware.num_devices, layout.world)
        update, offload = learning * HOST_ADAM_BYTES / node, learning * 4.0 / host
    if workload.offload_parameters:
        held = 0.5 if workload.tuning == "qlora" else 2.0
        busy = count * 2 * (common + experts) * held / layout.sharded_over / host
        offload += max((1 - _HIDES) * busy, busy - _HIDES * through)
    return update, offload
