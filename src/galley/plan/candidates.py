"""Every layout and micro-batch that a job allows: what divides, and what could fit by its states alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout, Recompute
from galley.plan.types import Hardware
from galley.plan.workload import Workload
from galley.recipe.schema import Tuning

Zero = Literal[0, 1, 2, 3]

_USEFUL_TOKENS = 32_768  # more at once make no matrix product faster, by the roofline of any device in the catalogue
_FEWEST_CONTEXT_TOKENS = 1_024  # shorter pieces of a sequence spend more time on exchange than on arithmetic
_UNEVEN = 1.15  # the fullest stage decides the time: more idle layers than this never win
_TUNINGS: tuple[Tuning, ...] = ("full", "lora", "qlora")


@dataclass(frozen=True, kw_only=True)
class Pins:
    """What the search must keep; None leaves it open.

    Args:
        tuning: else the workload's own, and a cheaper one where that does not fit.
        precision: else bf16 where the device multiplies it, else fp32. fp16, fp8 and fp4 are never taken unasked.
        tensor, pipeline, virtual, data, context, expert, zero, shards: of the layout.
        recompute: what is computed again.
        offload_optimizer, offload_parameters: to the host.
        micro_batch: rows that a copy of the model computes at once.
        micro_batch_tokens: tokens of these, at most.
    """

    tuning: Tuning | None = None
    precision: str | None = None
    tensor: int | None = None
    pipeline: int | None = None
    virtual: int | None = None
    data: int | None = None
    context: int | None = None
    expert: int | None = None
    zero: Zero | None = None
    shards: int | None = None
    recompute: Recompute | None = None
    offload_optimizer: bool | None = None
    offload_parameters: bool | None = None
    micro_batch: int | None = None
    micro_batch_tokens: int | None = None


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All of them, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def tunings(workload: Workload, pins: Pins) -> tuple[Tuning, ...]:
    """The wanted way to tune, then cheaper ones where it is not pinned."""
    if pins.tuning is not None:
        return (pins.tuning,)
    if workload.tuning not in _TUNINGS:
        return (workload.tuning, "qlora")
    return _TUNINGS[_TUNINGS.index(workload.tuning) :]


def precision(hardware: Hardware, workload: Workload, pins: Pins) -> str:
    """What the products are computed in."""
    if pins.precision is not None:
        return pins.precision
    if workload.precision != "bf16":
        return str(workload.precision)
    known = bool(hardware.tflops) or hardware.device == "cpu"
    has_bf16 = "bf16" in hardware.tflops or any("bf16" in feature for feature in hardware.features)
    return "bf16" if has_bf16 or not known else "fp32"


def layouts(a: Architecture, hardware: Hardware, workload: Workload, pins: Pins) -> Iterator[Layout]:
    """Ways of splitting over all devices, without what the copies share: tensor, pipeline, context, expert, data."""
    world = hardware.world
    for tensor in _tensors(a, hardware, pins):
        for pipeline in _pipelines(a, world // tensor, pins):
            for context in _contexts(workload, world // (tensor * pipeline), pins):
                data = world // (tensor * pipeline * context)
                if workload.global_batch % data or data != (pins.data or data):
                    continue
                for expert in _experts(a, data * context, pins):
                    yield Layout(tensor=tensor, pipeline=pipeline, data=data, context=context, expert=expert)


def shardings(layout: Layout, hardware: Hardware, pins: Pins) -> Iterator[Layout]:
    """What the copies share, the cheapest exchange first.

    Optimiser states are always shared where there are copies: this moves no more bytes than summing gradients
    (Rajbhandari et al., 1910.02054, section 7). With a pipeline, gradients stay whole: each micro-batch adds to them.
    """
    copies = layout.data * layout.context
    levels: tuple[Zero, ...] = (0,) if copies == 1 else (1, 3) if layout.pipeline > 1 else (1, 2, 3)
    if pins.zero is not None:
        levels = (pins.zero,)
    for zero in levels:
        for shards in _shards(layout, hardware, pins) if zero == 3 else (pins.shards or 0,):
            if shards == 0 or copies % shards == 0:
                yield replace(layout, zero=zero, shards=shards)


def virtuals(a: Architecture, layout: Layout, micro_batches: int, pins: Pins) -> Iterator[int]:
    """Pieces of each stage in an interleaved schedule, beside one; it needs whole rounds of micro-batches."""
    if pins.virtual is not None or layout.pipeline == 1 or micro_batches % layout.pipeline:
        return
    for virtual in (2, 4, 8):
        if _even_enough(a.layers, layout.pipeline * virtual):
            yield virtual


def micro_batches(workload: Workload, layout: Layout, pins: Pins) -> tuple[int, ...]:
    """Rows at once, ascending: each divides what a copy has to do, so that accumulation is whole."""
    rows = workload.global_batch // layout.data
    useful = _USEFUL_TOKENS * layout.context
    most = max(1, min(useful, pins.micro_batch_tokens or useful) // workload.sequence)
    found = tuple(d for d in divisors(rows) if d <= most)
    if pins.micro_batch is not None:
        found = (pins.micro_batch,) if rows % pins.micro_batch == 0 else ()
    if (pins.virtual or 1) > 1:  # an interleaved schedule needs whole rounds
        found = tuple(d for d in found if rows // d % layout.pipeline == 0)
    return found


def recomputes(workload: Workload, pins: Pins) -> tuple[Recompute, ...]:
    """The fastest first. Fused attention keeps no scores, so that selective recomputation would save nothing."""
    if pins.recompute is not None:
        return (pins.recompute,)
    return ("none", "full") if workload.fused_attention else ("none", "selective", "full")


def offloads(pins: Pins) -> tuple[tuple[bool, bool], ...]:
    """(optimiser states, weights) kept by the host, the fastest first."""
    kinds = ((False, False), (True, False), (True, True))
    return tuple(
        kind
        for kind in kinds
        if kind[0] == (kind[0] if pins.offload_optimizer is None else pins.offload_optimizer)
        and kind[1] == (kind[1] if pins.offload_parameters is None else pins.offload_parameters)
    ) or ((bool(pins.offload_optimizer), bool(pins.offload_parameters)),)


def least_state_bytes(a: Architecture, workload: Workload, layout: Layout) -> float:
    """States of a device at the very least, all parts split as evenly as could be: a quick reason to skip a layout."""
    experts = a.expert_layers * a.expert_parameters
    split = layout.tensor * layout.pipeline
    mine = (a.num_parameters - experts) / split + experts / (split * layout.expert)
    share = layout.sharded_over
    if workload.tuning != "full":
        kept = 0.5 if workload.tuning == "qlora" else 2.0
        return 0.0 if workload.offload_parameters else mine * kept / (share if layout.zero >= 3 else 1)
    weights = 0.0 if workload.offload_parameters else 2.0 / (share if layout.zero >= 3 else 1)
    states = 0.0 if workload.offload_optimizer else workload.master_bytes / share
    return mine * (weights + states)


def _tensors(a: Architecture, hardware: Hardware, pins: Pins) -> Iterator[int]:
    """Within a node, since every layer exchanges its results; heads and widths must divide."""
    options = divisors(hardware.num_devices) if pins.tensor is None else (pins.tensor,)
    keys = a.heads if a.mla else a.kv_heads or a.heads
    for tensor in options:
        widths = [a.heads, a.ffn, *([a.expert_ffn] if a.experts else [])]
        # A pin may ask for more devices than there are key heads; then several hold the same.
        shared = pins.tensor is not None and tensor % keys == 0
        splits = keys % tensor == 0 or shared
        if splits and hardware.world % tensor == 0 and all(width % tensor == 0 for width in widths):
            yield tensor


def _pipelines(a: Architecture, devices: int, pins: Pins) -> Iterator[int]:
    for pipeline in divisors(devices) if pins.pipeline is None else (pins.pipeline,):
        if (pins.virtual or 1) > 1 and (pipeline == 1 or a.layers < pipeline * (pins.virtual or 1)):
            continue
        if devices % pipeline == 0 and (pins.pipeline is not None or _even_enough(a.layers, pipeline)):
            yield pipeline


def _even_enough(layers: int, stages: int) -> bool:
    """Whether no stage is empty, and the fullest has few more layers than the average."""
    most = math.ceil(layers / stages)
    return most * (stages - 1) < layers and most * stages <= _UNEVEN * layers


def _contexts(workload: Workload, devices: int, pins: Pins) -> Iterator[int]:
    """Each device gets two equal pieces of a sequence, one early and one late, as causal attention needs."""
    if pins.context is not None:
        if devices % pins.context == 0:
            yield pins.context
        return
    for context in divisors(devices):
        whole = context == 1 or workload.sequence % (2 * context) == 0
        if whole and (context == 1 or workload.sequence // context >= _FEWEST_CONTEXT_TOKENS):
            yield context


def _experts(a: Architecture, copies: int, pins: Pins) -> Iterator[int]:
    for expert in divisors(a.experts) if pins.expert is None and a.experts else (pins.expert or 1,):
        if copies % expert == 0 and (expert == 1 or (a.experts and a.experts % expert == 0)):
            yield expert


def _shards(layout: Layout, hardware: Hardware, pins: Pins) -> tuple[int, ...]:
    """All copies (FSDP), or those of a node where there are several nodes (HSDP)."""
    if pins.shards is not None:
        return (pins.shards,)
    near = hardware.num_devices // layout.tensor
    useful = hardware.num_nodes > 1 and near > 1 and (layout.data * layout.context) % near == 0
    return (near, 0) if useful and layout.pipeline == 1 and near < layout.data * layout.context else (0,)
