"""Where the decisions and predictions of a plan for several devices come from."""

from __future__ import annotations

from collections.abc import Iterator

from galley.base import format_bytes, format_count, format_duration
from galley.plan.explain import step_time
from galley.plan.judge import SAFETY
from galley.plan.trace import Trace
from galley.plan.types import ClusterPlan, Plan

_MEMORY = {
    "weights": "bytes of a number (bf16 2, fp32 4, nf4 0.56) x weights of the stage / tensor, / shares with ZeRO-3",
    "gradients": "4 bytes a weight that learns, / shares from ZeRO-2 on",
    "optimizer": "4 bytes of master and the moments (AdamW: 8) a weight that learns, / shares from ZeRO-1 on",
    "buckets": "buffers of the exchange between copies, a weight that learns",
    "gathered": "two layers, and embedding and head, whole while ZeRO-3 computes with them",
    "dequantised": "the widest quantised product, unpacked",
    "workspace": "of the allocator, whatever the model",
    "activations": "tokens of a micro-batch x what a layer keeps of one x layers x micro-batches in flight",
    "logits": "tokens of a micro-batch x vocabulary / tensor; in chunks where the loss is fused",
    "passing": "tokens of a micro-batch x the widest thing inside a layer",
    "cache": "tokens generated x keys and values of all layers",
}
_NOTHING = 1e-9  # seconds: rounding
_TIME = {
    "products": "FLOPs of matrix products / (peak x share that their shapes reach)",
    "attention": "FLOPs of causal attention / (peak x share that its kernels reach)",
    "other": "bytes read and written between products / memory bandwidth",
    "dequantise": "bytes of unpacked weights / memory bandwidth",
    "head": "FLOPs and bytes of the output layer and the loss",
    "models": "passes of the other models",
    "launch": "kernels x time to start one, where that is longer than computing",
    "tensor": "bytes of hidden states exchanged in each layer / link, not hidden",
    "pipeline": "(stages - 1) / (micro-batches x pieces a stage) of the time of all micro-batches (2104.04473)",
    "context": "bytes of keys and values exchanged / link, not hidden",
    "expert": "bytes of tokens sent to experts and back / link, not hidden",
    "data": "bytes of gradients and weights exchanged between copies / link or network, not hidden",
    "optimizer": "bytes of states read and written / memory bandwidth",
    "offload": "bytes to and from the host / its link, and arithmetic there",
}


def _cluster(plan: Plan) -> ClusterPlan:
    assert plan.cluster is not None, "these traces are of plans for several devices"
    return plan.cluster


def _ways(plan: Plan) -> Iterator[tuple[str, str]]:
    c, hardware = _cluster(plan), plan.hardware
    yield "devices", f"{hardware.world:,} x {hardware.name}" + _of_nodes(plan)
    ways = {"tensor": c.tensor, "pipeline": c.pipeline, "context": c.context, "expert": c.expert, "data": c.data}
    yield "split", " x ".join(f"{name} {size}" for name, size in ways.items())
    yield "states", f"ZeRO-{c.zero} over {(c.shards or c.data * c.context) if c.zero else 1:,} devices"
    yield "model", f"{format_count(c.parameters)} parameters, {plan.tuning} tuning, {plan.precision}"
    rows = plan.batch.global_batch_rows
    yield "a step", f"{rows:,} rows = {c.data} copies x {c.accumulation} micro-batches x {c.micro_batch_rows} rows"


def _of_nodes(plan: Plan) -> str:
    nodes = plan.hardware.num_nodes
    return f", {plan.hardware.num_devices} in each of {nodes:,} nodes" if nodes > 1 else ""


def _room(plan: Plan) -> Iterator[tuple[str, str]]:
    size = plan.hardware.memory_bytes
    yield (
        "there is",
        f"{format_bytes(size)} a device, of which {SAFETY:.0%} may be planned: {format_bytes(size * SAFETY)}",
    )
    yield "longest row", f"{_cluster(plan).sequence_tokens:,} tokens"


def _memory(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _ways(plan)
    yield from _room(plan)
    for name, size in plan.predicted.memory_parts.items():
        yield name, _is(format_bytes(size), _MEMORY.get(name))
    yield from _phases(plan)
    low, likely, high = plan.predicted.memory_bytes
    yield "range", f"{low / likely:.2f} to {high / likely:.2f} times the likely need, as of published runs"


def _phases(plan: Plan) -> Iterator[tuple[str, str]]:
    for name, size in plan.predicted.memory_phases.items():
        yield f"in phase {name}", format_bytes(size)


def _step(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _ways(plan)
    c, hardware = _cluster(plan), plan.hardware
    yield "usual row", f"{c.usual_tokens:,} tokens"
    yield "peak", f"{c.peak_flops / hardware.world / 1e12:,.0f} TFLOP/s a device in {plan.precision}"
    yield "memory", f"{hardware.memory_gbps:,.0f} GB/s"
    yield "link", f"{hardware.link or 'host'}, {hardware.link_gbps:,.0f} GB/s each way"
    if hardware.num_nodes > 1:
        yield "network", f"{hardware.network_gbps:,.0f} Gbit/s a device"
    for name, seconds in c.time_parts.items():
        if seconds > _NOTHING:
            yield name, _is(step_time(seconds), _TIME.get(name))
    low, likely, high = c.step_seconds
    yield "range", f"{low / likely:.2f} to {high / likely:.2f} times the sum, as of published runs"


def _is(value: str, formula: str | None) -> str:
    return f"{value:<10} = {formula}" if formula else value


def _mfu(plan: Plan) -> Iterator[tuple[str, str]]:
    c = _cluster(plan)
    yield "of the model", f"{c.step_flops:.3g} FLOPs a step: 6 a parameter and token, and causal attention"
    yield "step", step_time(c.step_seconds[1])
    yield "peak", f"{c.peak_flops:.3g} FLOP/s of {plan.hardware.world:,} devices in {plan.precision}"


def _speed(plan: Plan) -> Iterator[tuple[str, str]]:
    c = _cluster(plan)
    yield "tokens", f"{plan.batch.global_batch_rows:,} rows x {c.usual_tokens:,} tokens a step"
    low, likely, high = c.step_seconds
    yield "step", f"{step_time(likely)}, {step_time(low)} to {step_time(high)}"


def _training(plan: Plan) -> Iterator[tuple[str, str]]:
    low, likely, high = _cluster(plan).step_seconds
    yield "steps", f"{plan.steps:,}"
    yield "step", f"{step_time(likely)}, {step_time(low)} to {step_time(high)}"
    if plan.minutes:
        yield "limit", f"{plan.minutes:g} minutes by the clock"


def _energy(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "devices", f"{plan.hardware.world:,} of {plan.hardware.watts:,.0f} W"
    yield "training", format_duration(plan.predicted.seconds[1])


def _trade(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _ways(plan)
    yield from _room(plan)
    yield "needed", f"{format_bytes(plan.predicted.memory_bytes[1])} of it in use at the peak"
    yield "step", step_time(_cluster(plan).step_seconds[1])
    for alternative in plan.alternatives:
        yield "lost", f"{alternative.summary}: {alternative.lost_because}"


_SEARCH, _REASONS = "galley/plan/search.py", "galley/plan/reasons.py"
PREDICTIONS = {
    "step": lambda plan: step_time(_cluster(plan).step_seconds[1]),
    "mfu": lambda plan: f"{_cluster(plan).mfu:.1%} of peak",
    "energy": lambda plan: f"{_cluster(plan).kilowatt_hours:,.3g} kWh",
}
"""What is predicted for several devices alone."""
TRACES = {
    "memory": Trace(
        "of the fullest device, in the phase that needs most, the sum of its parts; whether it fits also counts what "
        "the allocator wastes, and context and kernels",
        _memory,
        "galley/plan/memory_model.py, states.py, activations.py; Korthikanti et al. 2022, arXiv 2205.05198, and "
        "Rajbhandari et al. 2019, arXiv 1910.02054",
    ),
    "step": Trace("the sum of its parts, each as far as nothing hides it", _step, "galley/plan/time_model.py"),
    "mfu": Trace("FLOPs of the model / (seconds of a step x peak)", _mfu, "galley/plan/time_model.py"),
    "speed": Trace("tokens of a step / seconds of a step", _speed, "galley/plan/time_model.py"),
    "training": Trace("steps x seconds of a step, cut by the time limit", _training, "galley/plan/cluster.py"),
    "energy": Trace("devices x most watts of one x time of the training", _energy, "galley/plan/time_model.py"),
    "tuning": Trace("the wanted one, then the same with states on the host, then lora, then qlora", _trade, _SEARCH),
    "layout": Trace(
        "least time of a step among all ways that divide devices, heads, layers, experts and batch, and fit; within "
        "1 % the simplest",
        _trade,
        _SEARCH,
    ),
    "zero": Trace(
        "the least sharing that fits and is fastest; ZeRO-1 is free where there are copies", _trade, _REASONS
    ),
    "micro_batch": Trace("of the divisors of a copy's rows the fastest that fits", _trade, _REASONS),
    "checkpointing": Trace("the least recomputation with which activations fit", _memory, _REASONS),
    "offload": Trace("only where the wanted tuning fits no other way", _trade, "galley/plan/judge.py"),
}
"""By decision and prediction; others are found as for one device."""
