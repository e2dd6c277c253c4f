"""Which layers stand on which stage of a pipeline, and how many micro-batches wait there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software

_LOSS_BLOCKS = 2


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline.

    Args:
        index: from 0.
        layers: on it.
        embedding, head: whether it holds the table of inputs, and the output head with the loss.
        in_flight: micro-batches whose activations it holds at once; a fraction with an interleaved schedule.
    """

    index: int
    layers: int
    embedding: bool
    head: bool
    in_flight: float


def stages_of(a: Architecture, layout: Layout, micro_batches: int, *, balances_head: bool) -> tuple[Stage, ...]:
    """The stages that can be the fullest: the first two, the last, and the one with the head.

    Args:
        a: the model.
        layout: how it is split.
        micro_batches: of a step.
        balances_head: stages get equal work with the output head counted, else equally many layers.
    """
    pipeline = layout.pipeline
    if balances_head:
        matrix = 4 * a.hidden * a.queries + 3 * a.ffn * a.hidden
        layers, head = _by_work(a.layers, matrix, a.embedding_parameters, pipeline)
    else:
        layers, head = _by_count(a.layers, pipeline), pipeline - 1
    shown = sorted({0, min(1, pipeline - 1), head, pipeline - 1})
    return tuple(Stage(i, layers[i], i == 0, i == head, _in_flight(i, layout, micro_batches)) for i in shown)


def refusal(a: Architecture, layout: Layout, micro_batches: int, software: Software) -> str:
    """Why the engine would not start on this pipeline, whatever the memory; empty where it would.

    nanotron asserts `nb_microbatches >= pp - 1`, and fails on a stage that holds nothing: after the head's stage only
    the cast of its logits and the loss are left to place.
    """
    if not software.needs_full_pipeline:
        return ""
    if micro_batches < layout.pipeline - 1:
        return "fewer micro-batches than stages less one"
    stages = stages_of(a, layout, micro_batches, balances_head=software.balances_head)
    head = next(stage.index for stage in stages if stage.head)
    return "stages without work" if layout.pipeline - 1 - head > _LOSS_BLOCKS else ""


def _in_flight(stage: int, layout: Layout, micro_batches: int) -> float:
    """One forward, one backward: stage i of p holds p - i; v pieces a stage cost 1 + (p-1)/(pv) (Narayanan 2021)."""
    pipeline, virtual = layout.pipeline, layout.virtual
    waiting = float(pipeline - stage)
    if virtual > 1:
        waiting = ((virtual - 1) * pipeline + 2 * (pipeline - stage) - 1) / virtual
    return min(waiting, float(micro_batches))


def _by_count(layers: int, pipeline: int) -> tuple[int, ...]:
    """The first stages have the layers that are left over."""
    each, more = divmod(layers, pipeline)
    return tuple(each + (index < more) for index in range(pipeline))


@lru_cache(maxsize=4096)
def _by_work(layers: int, layer_cost: float, head_cost: float, pipeline: int) -> tuple[tuple[int, ...], int]:
    """A stage is closed once the work up to it passes its share (nanotron, `build_model`): late stages may be empty.

    Returns:
        Layers of each stage, and the stage of the head.
    """
    share = (layers * layer_cost + head_cost) / pipeline
    counts, stage, done = [0] * pipeline, 0, 0.0
    for _ in range(layers):
        counts[stage] += 1
        done += layer_cost
        if done > share * (stage + 1) and stage < pipeline - 1:
            stage += 1
    return tuple(counts), stage


def whole_layers(a: Architecture, stage: Stage) -> tuple[float, float]:
    """Dense layers and layers with experts of a stage; a mixture's dense ones are all on the first."""
    if not a.experts:
        return float(stage.layers), 0.0
    dense = min(stage.layers, a.dense_layers) if stage.embedding else 0
    return float(dense), float(stage.layers - dense)
