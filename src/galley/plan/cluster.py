"""A plan for more than one device: the search's layout in place of what fits one."""

from __future__ import annotations

import math
from dataclasses import replace

from galley.models.spec import ModelSpec
from galley.plan.architecture import Architecture
from galley.plan.families import CHECKED, architecture_of
from galley.plan.judge import Choice, Judge
from galley.plan.layout import Layout
from galley.plan.pins import pins_of
from galley.plan.price import cost_of
from galley.plan.reasons import reasons
from galley.plan.search import search
from galley.plan.software import GALLEY
from galley.plan.time_model import TimeEstimate, estimate_time
from galley.plan.types import Alternative, ClusterPlan, Decision, Hardware, Plan, Predicted
from galley.plan.workload import Workload
from galley.recipe.schema import Recipe

_LONGEST_ROW, _SHORTEST = 3.0, 64
"""The longest row over the mean, where rows are not documents cut to one length; and a row that is not worth less."""
UNLIMITED_BYTES = 1 << 60
"""Of a device, while what does not depend on the layout is decided."""


def without_limit(hardware: Hardware) -> Hardware:
    """The same with as much memory as anyone could want."""
    return hardware.model_copy(update={"memory_bytes": UNLIMITED_BYTES})


def over_devices(made: Plan, recipe: Recipe, spec: ModelSpec, hardware: Hardware) -> Plan:
    """The plan, laid out over all devices.

    Args:
        made: for one device without limit; its batch, length, optimiser and budget are kept.
        recipe: whose pins are kept.
        spec: shape of the model.
        hardware: all of whose devices are used.

    Raises:
        GalleyError: `plan-does-not-fit`, with the cheapest change that would help; `model-unsupported` when the
            model's layers are not known.
    """
    pins = recipe.override
    mean = made.tokens / max(1, made.rows)
    workload = Workload(
        sequence=min(made.batch.max_length_tokens, max(_SHORTEST, math.ceil(_LONGEST_ROW * mean))),
        global_batch=made.batch.global_batch_rows,
        tuning=made.tuning,
        rank=made.adapter.rank if made.adapter else 16,
        precision=made.precision,
        optimizer=made.optimizer.name,
        fused_loss=True,
    )
    architecture = architecture_of(spec)
    kept = pins_of(pins, architecture, hardware, workload)
    if spec.source == "random":
        kept = replace(kept, tuning="full")  # random weights learn nothing through adapters
    found = search(architecture, hardware, workload, pins=kept)
    best = found.best
    usual = replace(best.workload, sequence=min(best.workload.sequence, math.ceil(mean)))
    time = estimate_time(architecture, usual, best.layout, hardware, GALLEY)
    predicted = _predicted(made, best, time)
    why = tuple(reasons(Judge(architecture, hardware, GALLEY), found, kept))
    return made.model_copy(
        update={
            "hardware": hardware,
            "tuning": best.workload.tuning,
            "precision": best.workload.precision,
            "checkpointing": "none" if best.workload.recompute == "none" else "full",
            "cluster": _cluster(architecture, best, usual, time, predicted.seconds[1]),
            "predicted": predicted,
            "decisions": (*_renamed(made, best), *why),
            "alternatives": tuple(
                Alternative(summary=str(loser.choice), lost_because=loser.lost_because) for loser in found.runners_up
            ),
            "warnings": (*(w for w in made.warnings if "engine `single`" not in w), *_doubts(spec), _NOT_YET),
        }
    )


def layout_of(cluster: ClusterPlan) -> Layout:
    """The layout that a plan names."""
    return Layout(
        tensor=cluster.tensor,
        pipeline=cluster.pipeline,
        context=cluster.context,
        expert=cluster.expert,
        data=cluster.data,
        virtual=cluster.virtual,
        zero=cluster.zero,
        shards=cluster.shards,
    )


def workload_of(made: Plan, cluster: ClusterPlan) -> Workload:
    """A full step of the plan: rows of the longest length."""
    return Workload(
        sequence=made.batch.max_length_tokens,
        micro_batch=cluster.micro_batch_rows,
        global_batch=made.batch.global_batch_rows,
        tuning=made.tuning,
        rank=made.adapter.rank if made.adapter else 16,
        precision=made.precision,
        optimizer=made.optimizer.name,
        recompute=cluster.recompute,
        offload_optimizer=cluster.offload_optimizer,
        offload_parameters=cluster.offload_parameters,
        fused_loss=True,
    )


_NOT_YET = "this version trains on one device: the layout is what other engines, or a later version, would use"


def _cluster(a: Architecture, best: Choice, usual: Workload, time: TimeEstimate, seconds: float) -> ClusterPlan:
    layout, workload = best.layout, best.workload
    return ClusterPlan(
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        context=layout.context,
        expert=layout.expert,
        data=layout.data,
        virtual=layout.virtual,
        zero=layout.zero,
        shards=layout.shards,
        micro_batch_rows=workload.micro_batch,
        accumulation=best.accumulation,
        recompute=workload.recompute,
        offload_optimizer=workload.offload_optimizer,
        offload_parameters=workload.offload_parameters,
        sequence_tokens=workload.sequence,
        usual_tokens=usual.sequence,
        parameters=a.num_parameters,
        step_flops=time.model_flops,
        peak_flops=time.peak_flops,
        step_seconds=time.range,
        time_parts=dict(time.parts),
        mfu=time.mfu,
        kilowatt_hours=time.kilowatt_hours * seconds / time.seconds,
    )


def _predicted(made: Plan, best: Choice, time: TimeEstimate) -> Predicted:
    """Memory of a step of long rows, time of steps of usual ones, cut by the clock where the budget is a time."""
    fullest = best.memory.fullest
    low, likely, high = time.range
    most = math.inf if made.minutes is None else made.minutes * 60
    shortest, middle, longest = (min(most, made.steps * step) for step in time.range)
    likely_over_used = fullest.likely / fullest.allocated
    return made.predicted.model_copy(
        update={
            "memory_parts": {name: int(size) for name, size in fullest.parts.items() if size >= 1},
            "memory_bytes": (int(fullest.low), int(fullest.likely), int(fullest.high)),
            "memory_phases": {
                phase: int(sum(parts.values()) * likely_over_used) for phase, parts in fullest.phases.items()
            },
            "tokens_per_second": (time.tokens / high, time.tokens / likely, time.tokens / low),
            "seconds": (shortest, middle, longest),
            "cost": cost_of((shortest, middle, longest), made.price_per_hour),
        }
    )


def _renamed(made: Plan, best: Choice) -> tuple[Decision, ...]:
    """The decisions that hold for many devices, with the tuning that fits them."""
    kept = []
    for decision in made.decisions:
        if decision.key in ("micro_batch_tokens", "checkpointing", "fast_path", "compile"):
            continue  # the layout says
        if decision.key == "precision" and decision.value != best.workload.precision:
            because = "these devices multiply it fastest"
            kept.append(decision.model_copy(update={"value": str(best.workload.precision), "because": because}))
        elif decision.key == "tuning" and decision.value != best.workload.tuning:
            because = f"{decision.value} does not fit these devices, whatever the layout"
            kept.append(decision.model_copy(update={"value": best.workload.tuning, "because": because}))
        else:
            kept.append(decision)
    return tuple(kept)


def _doubts(spec: ModelSpec) -> tuple[str, ...]:
    if spec.family in CHECKED:
        return ()
    return (f"the layers of {spec.family} are taken for Llama's: memory and time may be far from this",)
