"""Where a decision or a prediction comes from: its rule, the figures that went into it, and who says so."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from galley.base import GalleyError, format_bytes, format_count, format_duration
from galley.plan import cluster_why
from galley.plan.fit import CHEAPER, USABLE_SHARE
from galley.plan.rules import (
    BATCH_ROWS,
    COMPILE_PAYS_SECONDS,
    FEW_ROWS,
    MOST_REPEATS,
    RANK,
    TINY,
    TOKENS_PER_PARAMETER,
)
from galley.plan.trace import Trace
from galley.plan.types import Plan


def why(plan: Plan, key: str) -> str:
    """The trace of one decision (`tuning`, `learning_rate`, ...) or prediction (`memory`, `speed`, `training`, ...).

    Raises:
        GalleyError: `plan-key-unknown`, with the nearest key.
    """
    decisions = {decision.key: decision for decision in plan.decisions}
    predictions = predictions_of(plan)
    known = [*decisions, *predictions]
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise GalleyError("plan-key-unknown", f"the plan decides nothing called {key!r}", hint=hint)
    lines = []
    if key in decisions:
        decision = decisions[key]
        lines.append(f"{key}: {decision.value}" + (", pinned by the recipe" if decision.pinned else ""))
        lines.append(f"because {decision.because}")
        if decision.would_change_if:
            lines.append(f"would change if {decision.would_change_if}")
    else:
        lines.append(f"{key}: {predictions[key](plan)}")
    traces = _TRACES if plan.cluster is None else _TRACES | cluster_why.TRACES
    trace = traces.get(key)
    if trace is not None:
        lines += ["", f"rule    {trace.rule}", f"source  {trace.source}", "figures"]
        figures = list(trace.figures(plan))
        wide = max((len(name) for name, _ in figures), default=0)
        lines += [f"  {name:<{wide}}  {value}" for name, value in figures]
    return "\n".join(lines) + "\n"


def predictions_of(plan: Plan) -> dict[str, Callable[[Plan], str]]:
    """What the plan predicts, by key: each gives its value in words."""
    found = _PREDICTIONS if plan.cluster is None else _PREDICTIONS | cluster_why.PREDICTIONS
    return {key: words for key, words in found.items() if key != "cost" or plan.predicted.cost is not None}


def _model(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "model", plan.model
    yield "trained", plan.tuning + (f", rank {plan.adapter.rank}" if plan.adapter else "")


def _memory(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "there is", f"{format_bytes(plan.hardware.memory_bytes)}, of which {USABLE_SHARE:.0%} may be planned"
    for name, size in plan.predicted.memory_parts.items():
        yield name, format_bytes(size)
    correction = plan.predicted.correction
    learned = f"learned from {correction.trainings}" if correction.trainings else "usual"
    yield "range", " to ".join(f"{factor:.2f}" for factor in correction.memory) + f" times the sum, {learned}"


def _speed(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "device", f"{plan.device}, {plan.threads} threads" if plan.device == "cpu" else plan.hardware.name
    yield "instructions", ", ".join(plan.hardware.features) or "none that count"
    yield "precision", plan.precision
    yield "path", "the step written by hand" if plan.fast_path else "the general step"
    yield from _measured(plan)
    correction = plan.predicted.correction
    learned = f"learned from {correction.trainings}" if correction.trainings else "usual"
    yield "range", " to ".join(f"{factor:.2f}" for factor in correction.speed) + f" times the rule, {learned}"


def _measured(plan: Plan) -> Iterator[tuple[str, str]]:
    found = plan.hardware.measured
    if found is None or plan.precision not in found.tflops:
        yield "measured", "nothing in this precision: `galley calibrate` replaces rules and data sheets on this machine"
        return
    speed, half = found.tflops[plan.precision], found.half_speed_rows[plan.precision]
    yield "measured", f"by galley calibrate, {found.on}"
    yield "products", f"{speed:.3g} TFLOP/s in {plan.precision}, half of it at {half:.0f} tokens"
    yield "memory", f"{found.memory_gbps:.3g} GB/s read and written"


def _batches() -> str:
    """`8 below 2,000 rows, ..., else 32`."""
    *limited, (_, most) = BATCH_ROWS
    return ", ".join(f"{batch} below {limit:,} rows" for limit, batch in limited) + f", else {most}"


def _data(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "rows", f"{plan.rows:,}"
    yield "tokens an epoch", f"{plan.tokens:,}" + ("" if plan.exact else ", estimated from characters")
    yield "epochs", f"{plan.epochs:g}"
    yield "steps", f"{plan.steps:,} of {plan.batch.global_batch_rows} rows"


def _batch(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _data(plan)
    yield "longest row kept", f"{plan.batch.max_length_tokens:,} tokens"
    yield "activations", format_bytes(plan.predicted.memory_parts.get("activations", 0))


def _rate(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _model(plan)
    yield "optimiser", plan.optimizer.name
    yield "peak", f"{plan.optimizer.learning_rate:g}"
    yield "warm-up", f"{plan.optimizer.warmup_steps:,} of {plan.steps:,} steps"


def _training(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _data(plan)
    low, likely, high = plan.predicted.tokens_per_second
    yield "speed", f"{likely:,.0f} tokens a second, {low:,.0f} to {high:,.0f}"
    if plan.minutes:
        yield "limit", f"{plan.minutes:g} minutes by the clock"


def _disk(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _model(plan)
    yield "result", format_bytes(plan.predicted.disk_bytes)


def _cost(plan: Plan) -> Iterator[tuple[str, str]]:
    low, likely, high = plan.predicted.seconds
    yield "training", f"{format_duration(likely)}, {format_duration(low)} to {format_duration(high)}"
    yield "price", f"{plan.price_per_hour or 0:g} an hour, of all the hardware (budget.price_per_hour)"


def _task(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "task", plan.task
    yield "model", plan.model


_PREDICTIONS: dict[str, Callable[[Plan], str]] = {
    "memory": lambda plan: format_bytes(plan.predicted.memory_bytes[1]),
    "speed": lambda plan: f"{format_count(plan.predicted.tokens_per_second[1])} tokens a second",
    "training": lambda plan: format_duration(plan.predicted.seconds[1]),
    "disk": lambda plan: format_bytes(plan.predicted.disk_bytes),
    "cost": lambda plan: f"{plan.predicted.cost[1] if plan.predicted.cost else 0:,.2f}",
}

_FIT = "galley/plan/fit.py"
_TRACES: dict[str, Trace] = {
    "memory": Trace(
        "weights + gradients + optimiser states + activations + logits + runtime, of the largest micro-batch; learned "
        "weights take 4 bytes of master, 4 of gradient and the optimiser's moments",
        _memory,
        "galley/plan/memory.py, states.py, activations.py; after Korthikanti et al. 2022, arXiv 2205.05198",
    ),
    "speed": Trace(
        "operations a second of the device / operations a token: 4 a frozen and 6 a learned weight, and attention; "
        "after galley calibrate, measured products and other traffic over measured memory, and a share of that",
        _speed,
        "galley/plan/time.py; without calibration, rates of processors measured by us and of GPUs from data sheets",
    ),
    "training": Trace("tokens of all steps / speed, cut by the time limit", _training, "galley/plan/decide.py"),
    "disk": Trace("12 bytes a learned weight and checkpoint kept, and the result", _disk, "galley/plan/decide.py"),
    "cost": Trace(
        "price of an hour x time of the training, without loading and judging", _cost, "galley/plan/price.py"
    ),
    "method": Trace("the one that declares the task, unless pinned", _task, "galley/plan/checks.py"),
    "tuning": Trace(
        f"the first way that fits, of full (up to {format_count(TINY)} parameters), {', '.join(CHEAPER)}", _memory, _FIT
    ),
    "checkpointing": Trace("none, unless activations do not fit without it", _memory, _FIT),
    "max_length": Trace("the usual limit of the device, halved while nothing fits", _batch, _FIT),
    "micro_batch_tokens": Trace("as many as keep products busy, halved while they do not fit", _batch, _FIT),
    "global_batch": Trace(_batches(), _data),
    "epochs": Trace(
        f"three below {FEW_ROWS:,} rows, else one; random weights get about {TOKENS_PER_PARAMETER} tokens each, in at "
        f"most {MOST_REPEATS} passes",
        _data,
    ),
    "rank": Trace(
        f"{RANK} on all linear layers", _model, "galley/plan/rules.py; Dettmers et al. 2023, arXiv 2305.14314"
    ),
    "learning_rate": Trace("by a table of sizes: smaller models take larger steps", _rate),
    "schedule": Trace("cosine, unless pinned", _rate),
    "optimizer": Trace("AdamW, unless pinned", _memory),
    "precision": Trace("bf16 where the device multiplies it in hardware, else float32", _speed),
    "device": Trace("the fastest kind that is there", _speed, "galley/plan/checks.py"),
    "fast_path": Trace("Llama-shaped decoders with adapters, without recomputation", _speed, "galley/plan/decide.py"),
    "compile": Trace(
        f"blocks, where the general step runs for more than {format_duration(COMPILE_PAYS_SECONDS)}",
        _training,
        "galley/plan/decide.py",
    ),
}
