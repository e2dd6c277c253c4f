"""Seconds of one layer, and of the output head, for one micro-batch: a roofline for each operation, by its shape."""

from __future__ import annotations

from dataclasses import dataclass

from galley.plan.architecture import Architecture
from galley.plan.collectives import group_of
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.types import Hardware
from galley.plan.workload import Workload

PRODUCT_EFFICIENCY = {"a100": 0.83, "h100": 0.65, "h200": 0.65, "b200": 0.57, "b300": 0.86}
"""Of the nominal peak, reached by large matrix products in 16 bit, by the device's family."""
OTHER_EFFICIENCY = 0.65
NARROW_EFFICIENCY = 0.95
"""Of fp8 and fp4, against 16 bit: operands are cast and scaled."""
ATTENTION_EFFICIENCY = {"a100": 0.31, "h100": 0.40, "h200": 0.40, "b200": 0.30, "b300": 0.24}
"""Of the core of attention (flash attention), against the 16-bit peak."""
EDGE = 148.0
"""A side of a product that is this long runs at half speed: tiles are not filled, and waves of them end ragged."""
MEMORY_EFFICIENCY = 0.80
HIDDEN_PASSES = 80.0
"""Numbers read or written for each of the residual stream in a layer's norms, additions and rotations, both ways."""
INNER_PASSES = 8.5
"""The same for each inner number of the feed-forward net: activation and gate."""
SCORE_PASSES = 12.0
"""The same for each score of attention where those are written down: scaled, masked, softmax, dropout, gradients."""
LOGIT_BYTES = 32.0
"""Read or written for each logit by the loss, both ways."""
BACKWARD_ATTENTION = 2.5
"""Products of the backward pass of flash attention over those of the forward pass (Dao 2023)."""
EXPERT_EFFICIENCY = 0.47
"""Of grouped products over the experts of a device, against single ones of their shape."""
ROUTED_PASSES = 23.0
"""Read or written for each hidden number that is sent to experts: sorted, weighted and put back, both ways."""
DEQUANTISE_BYTES = 6.0
"""Read or written for each 4-bit weight that is written out in 16 bit, with what the kernel loses."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of a micro-batch, forward and backward, with what is computed again.

    Args:
        products: matrix products.
        attention: its core.
        other: norms, activations, residuals.
        tensor, context, expert: exchanges between devices.
        dequantise: writing out 4-bit weights.
    """

    products: float = 0.0
    attention: float = 0.0
    other: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    dequantise: float = 0.0

    @property
    def seconds(self) -> float:
        """All."""
        return self.products + self.attention + self.other + self.tensor + self.context + self.expert + self.dequantise


def family(table: dict[str, float], name: str, default: float) -> float:
    """The figure of the device's family, by the start of its name."""
    return next((value for start, value in table.items() if name.removeprefix("g").startswith(start)), default)


def peak_flops(hardware: Hardware, precision: str) -> float:
    """Nominal peak of a device in that precision, or in the widest that is known."""
    wide = hardware.tflops.get("bf16", hardware.tflops.get("fp16", max(hardware.tflops.values(), default=0.1)))
    return hardware.tflops.get(precision, wide) * 1e12


def product_seconds(rows: float, columns: float, inner: float, flops: float) -> float:
    """Of one matrix product [rows, inner] x [inner, columns].

    Args:
        rows: of the first matrix: tokens.
        columns: of the second.
        inner: side that is summed over.
        flops: a second that large products reach.
    """
    return 2 * (rows + EDGE) * (columns + EDGE) * (inner + EDGE) / flops


def product_flops(hardware: Hardware, precision: str) -> float:
    """A second, that large products reach."""
    efficiency = family(PRODUCT_EFFICIENCY, hardware.name, OTHER_EFFICIENCY)
    narrow = precision in ("fp8", "fp4") and precision in hardware.tflops
    return peak_flops(hardware, precision) * efficiency * (NARROW_EFFICIENCY if narrow else 1.0)


def layer_time(
    a: Architecture, workload: Workload, layout: Layout, hardware: Hardware, software: Software, *, experts: bool
) -> LayerTime:
    """Of a layer, dense or with experts, on each device that shares it."""
    tensor = layout.tensor
    tokens = workload.sequence * workload.micro_batch / layout.context
    flops = product_flops(hardware, str(workload.precision)) * software.product_share
    bandwidth = (hardware.memory_gbps or 50.0) * 1e9 * MEMORY_EFFICIENCY
    again = recomputed_share(a, workload)
    passes = (3.0 if workload.tuning == "full" else 2.0) + (again if workload.recompute == "full" else 0.0)

    attention = _attention_products(a, tokens, tensor, flops)
    if experts:
        routed = tokens * a.active_experts / tensor * workload.expert_imbalance
        here = max(1.0, a.experts / layout.expert)
        ffn = here * _ffn_products(a, routed / here, a.expert_ffn, flops) / EXPERT_EFFICIENCY
        if a.shared_experts:
            ffn += _ffn_products(a, tokens, a.expert_ffn * a.shared_experts / tensor, flops)
    else:
        routed, ffn = 0.0, _ffn_products(a, tokens, a.ffn / tensor, flops)
    core_flops = peak_flops(hardware, "bf16") * family(ATTENTION_EFFICIENCY, hardware.name, 0.3)
    core_flops *= software.attention_share
    core_passes = 1 + BACKWARD_ATTENTION + (again if workload.recompute != "none" else 0.0)
    core = core_passes * tokens * a.attention_flops(workload.sequence) / tensor / core_flops
    exchanges = 8.0 + (4.0 * again if workload.recompute == "full" else 0.0)
    quantised = 0.0
    if workload.tuning == "qlora":
        weights = a.attention_parameters + a.ffn_parameters(a.ffn)
        quantised = weights / tensor * DEQUANTISE_BYTES * (passes if workload.recompute == "full" else 2.0)
    return LayerTime(
        products=passes * (attention + ffn),
        attention=core,
        other=_moved_bytes(a, workload, layout, software, routed) / bandwidth,
        tensor=(1 - software.overlaps_tensor) * exchanges * group_of(hardware, tensor, 1).gather(2 * tokens * a.hidden),
        context=_context_seconds(a, tokens, layout, hardware, core),
        expert=(1 - software.overlaps_experts)
        * exchanges
        / 2
        * group_of(hardware, layout.expert, tensor).exchange(2 * routed * a.hidden),
        dequantise=quantised / bandwidth,
    )


def _moved_bytes(a: Architecture, workload: Workload, layout: Layout, software: Software, routed: float) -> float:
    """Read and written by all that is no product, both ways; `routed` tokens see this device's experts, 0 if dense."""
    tokens, tensor = workload.sequence * workload.micro_batch / layout.context, layout.tensor
    again = recomputed_share(a, workload)
    split = tensor if layout.sequence_parallel else 1
    inner = tokens * a.ffn / tensor
    if routed:
        inner = routed * a.expert_ffn + tokens * a.shared_experts * a.expert_ffn / tensor
    numbers = (HIDDEN_PASSES * tokens * a.hidden / split + INNER_PASSES * inner) * software.unfused
    moved = 2 * (numbers + ROUTED_PASSES * routed * a.hidden)
    if not workload.fused_attention:
        scores = workload.micro_batch * a.heads / tensor * workload.sequence**2 / layout.context
        moved += 2 * scores * (SCORE_PASSES + (SCORE_PASSES / 3 * again if workload.recompute == "selective" else 0.0))
    if workload.recompute == "full":
        moved *= 1 + again / 3
    if workload.tuning == "full":
        # Every micro-batch adds its gradients, in 16 bit, to the sum.
        weights = a.dense_layer_parameters / tensor
        if routed:
            weights = a.expert_layer_parameters / tensor + a.expert_parameters / layout.expert
        moved += (2 + 2 * workload.gradient_bytes) * weights
    return moved


def _context_seconds(a: Architecture, tokens: float, layout: Layout, hardware: Hardware, core: float) -> float:
    """Keys and values go round once forward, and with their gradients backward, behind the core of attention."""
    if layout.context == 1:
        return 0.0
    own = 2 * 2 * tokens * a.keys / layout.tensor
    return max(0.0, 3 * group_of(hardware, layout.context, layout.tensor).gather(own * layout.context) - core)


def head_time(a: Architecture, workload: Workload, layout: Layout, hardware: Hardware) -> LayerTime:
    """Of the output head with its loss."""
    tokens = workload.sequence * workload.micro_batch / layout.context
    if workload.fused_loss:
        tokens *= workload.supervised_share
    flops = product_flops(hardware, "bf16")
    passes = 3.0 if workload.tuning == "full" else 2.0
    bandwidth = (hardware.memory_gbps or 50.0) * 1e9 * MEMORY_EFFICIENCY
    columns = a.vocab / layout.tensor
    return LayerTime(
        products=passes * product_seconds(tokens, columns, a.hidden, flops),
        other=tokens * columns * LOGIT_BYTES / bandwidth,
        tensor=2 * group_of(hardware, layout.tensor, 1).gather(2 * tokens * a.hidden),
    )


def recomputed_share(a: Architecture, workload: Workload) -> float:
    """Share of the layers whose forward pass is computed again."""
    if workload.recompute == "none":
        return 0.0
    return 1.0 if workload.recompute_layers is None else min(1.0, workload.recompute_layers / a.layers)


def _attention_products(a: Architecture, tokens: float, tensor: int, flops: float) -> float:
    """Queries, keys and values, and the output; latent attention as one product of as many weights."""
    if a.mla is not None:
        return product_seconds(tokens, a.attention_parameters / a.hidden / tensor, a.hidden, flops)
    fused = product_seconds(tokens, (a.queries + 2 * a.keys) / tensor, a.hidden, flops)
    return fused + product_seconds(tokens, a.hidden, a.queries / tensor, flops)


def _ffn_products(a: Architecture, tokens: float, inner: float, flops: float) -> float:
    """Up (with the gate), and down."""
    up = product_seconds(tokens, inner * (2 if a.gated else 1), a.hidden, flops)
    return up + product_seconds(tokens, a.hidden, inner, flops)
