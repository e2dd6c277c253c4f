"""A plan for more than one device: the search's layout in place of what fits one."""

from __future__ import annotations

import math
from dataclasses import replace

from galley.models.spec import ModelSpec
from galley.plan.candidates import Pins
from galley.plan.families import CHECKED, architecture_of
from galley.plan.judge import Choice
from galley.plan.layout import Layout
from galley.plan.search import SearchResult, search
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
    kept = Pins(
        tuning=pins.tuning,
        precision=pins.precision,
        recompute=pins.checkpointing,
        micro_batch=pins.micro_batch,
    )
    architecture = architecture_of(spec)
    found = search(architecture, hardware, workload, pins=kept)
    best = found.best
    usual = replace(best.workload, sequence=min(best.workload.sequence, math.ceil(mean)))
    time = estimate_time(architecture, usual, best.layout, hardware, GALLEY)
    return made.model_copy(
        update={
            "hardware": hardware,
            "tuning": best.workload.tuning,
            "checkpointing": "none" if best.workload.recompute == "none" else "full",
            "cluster": _cluster(best, time, made.steps),
            "predicted": _predicted(made, best, time),
            "decisions": (*_renamed(made, best), _decision(found)),
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


def _cluster(best: Choice, time: TimeEstimate, steps: int) -> ClusterPlan:
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
        step_seconds=time.range,
        time_parts=dict(time.parts),
        mfu=time.mfu,
        kilowatt_hours=time.kilowatt_hours * steps,
    )


def _predicted(made: Plan, best: Choice, time: TimeEstimate) -> Predicted:
    """Memory of a step of long rows, time of steps of usual ones."""
    fullest = best.memory.fullest
    low, likely, high = time.range
    return made.predicted.model_copy(
        update={
            "memory_parts": {name: int(size) for name, size in fullest.parts.items() if size >= 1},
            "memory_bytes": (int(fullest.low), int(fullest.likely), int(fullest.high)),
            "tokens_per_second": (time.tokens / high, time.tokens / likely, time.tokens / low),
            "seconds": (made.steps * low, made.steps * likely, made.steps * high),
        }
    )


def _renamed(made: Plan, best: Choice) -> tuple[Decision, ...]:
    """The decisions that hold for many devices, with the tuning that fits them."""
    kept = []
    for decision in made.decisions:
        if decision.key in ("micro_batch_tokens", "checkpointing", "fast_path", "compile"):
            continue  # the layout says
        if decision.key == "tuning" and decision.value != best.workload.tuning:
            because = f"{decision.value} does not fit these devices, whatever the layout"
            kept.append(decision.model_copy(update={"value": best.workload.tuning, "because": because}))
        else:
            kept.append(decision)
    return tuple(kept)


def _doubts(spec: ModelSpec) -> tuple[str, ...]:
    if spec.family in CHECKED:
        return ()
    return (f"the layers of {spec.family} are taken for Llama's: memory and time may be far from this",)


def _decision(found: SearchResult) -> Decision:
    best = found.best
    because = (
        f"the fastest of those that fit: {best.time.seconds:.3g} s a step of {best.workload.sequence:,} tokens a row, "
        f"at {best.time.mfu:.0%} of the devices' peak"
    )
    return Decision(key="layout", value=str(best), because=because)
