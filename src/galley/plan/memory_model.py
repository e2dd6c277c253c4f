"""Memory of every device of a layout: what is kept, part by part, in each phase of a training."""

from __future__ import annotations

from dataclasses import dataclass, field

from galley.plan.activations import LayerBytes, layer_bytes, logit_bytes
from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.stages import Stage, stages_of, whole_layers
from galley.plan.states import states_of
from galley.plan.types import Hardware
from galley.plan.workload import Workload

_SPREAD = (0.85, 1.2)
"""Of the likely need: 86 % of the published runs lie inside (docs/planner.md has each source)."""

Parts = dict[str, float]


@dataclass(frozen=True)
class DeviceMemory:
    """Of one device, in each phase.

    Args:
        stage: of the pipeline, from 0.
        phases: bytes by part, by phase: load, step, update, evaluation, generation, save.
        fragmentation: what the allocator reserves over what is used.
        runtime_bytes: context and kernels, outside the allocator.
        reports_reserved: whether `likely` is of reserved memory, as the engine prints it.
    """

    stage: int
    phases: dict[str, Parts] = field(default_factory=dict)
    fragmentation: float = 1.0
    runtime_bytes: float = 0.0
    reports_reserved: bool = False

    @property
    def phase(self) -> str:
        """In which most is needed."""
        return max(self.phases, key=lambda name: sum(self.phases[name].values()))

    @property
    def parts(self) -> Parts:
        """Bytes by part in that phase."""
        return self.phases[self.phase]

    @property
    def allocated(self) -> float:
        """Bytes in use at the peak."""
        return sum(self.parts.values())

    @property
    def reserved(self) -> float:
        """Bytes that the allocator has taken at the peak."""
        return self.allocated * self.fragmentation

    @property
    def likely(self) -> float:
        """Bytes that the engine would print: reserved or allocated, by its habit."""
        return self.reserved if self.reports_reserved else self.allocated

    @property
    def needed(self) -> float:
        """Bytes that the device must have."""
        return self.reserved + self.runtime_bytes

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
        stages: one device of each that can be the fullest; the first and the last are always among them.
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
    """Memory of a training.

    Args:
        architecture: the model.
        workload: what a step computes.
        layout: how it is split.
        hardware: of which the devices are.
        software: the engine's habits.
    """
    micro_batches = workload.micro_batches(layout.data)
    stages = stages_of(architecture, layout, micro_batches, balances_head=software.balances_head)
    return MemoryEstimate(tuple(_device(architecture, workload, layout, hardware, software, stage) for stage in stages))


def _device(
    a: Architecture, w: Workload, layout: Layout, hardware: Hardware, software: Software, stage: Stage
) -> DeviceMemory:
    kept = {**states_of(a, w, layout, software, stage), "workspace": software.workspace_bytes}
    still = {name: size for name, size in kept.items() if name in ("weights", "gathered", "workspace")}
    phases = {
        "load": still,
        "step": {**kept, **_activations(a, w, layout, software, stage)},
        "update": kept,
        "evaluation": {**kept, **_forward_only(a, w, layout, software, stage)},
        "save": kept,
    }
    if w.generation_rows:
        phases["generation"] = {
            **kept,
            "cache": w.generation_rows * a.cache_bytes(w.generation_length) / _cache_shares(a, layout),
            "logits": w.generation_rows * logit_bytes(a, w, layout, software) if stage.head else 0.0,
        }
    gpu = hardware.device != "cpu"
    return DeviceMemory(
        stage.index,
        phases,
        fragmentation=software.fragmentation if gpu else 1.0,
        runtime_bytes=software.runtime_bytes if gpu else 0.0,
        reports_reserved=software.reports_reserved,
    )


def _cache_shares(a: Architecture, layout: Layout) -> int:
    """Devices among which keys and values are split; latents are whole on each that shares a layer."""
    heads = 1 if a.mla is not None else max(1, a.kv_heads or a.heads)
    return layout.pipeline * min(layout.tensor, heads)


def _activations(a: Architecture, w: Workload, layout: Layout, software: Software, stage: Stage) -> Parts:
    """At the end of the last forward pass before a backward one, when most is kept.

    A layer that is computed again has its whole set only in its own backward pass, and then the logits are gone: the
    greater of the two counts.
    """
    kinds = _kinds(a, w, layout, software, stage)
    tokens = w.sequence * w.micro_batch / layout.context
    kept, again = sum(count * layer.kept for count, layer in kinds), 0.0
    if w.recompute == "full" and kinds:
        share = 1.0 if w.recompute_layers is None else min(1.0, w.recompute_layers / max(1, stage.layers))
        kept += share * sum(count * (layer.boundary - layer.kept) for count, layer in kinds)
        again = max(layer.kept - layer.boundary for _, layer in kinds) if share else 0.0
    logits = logit_bytes(a, w, layout, software) if stage.head else 0.0
    return {
        "activations": tokens * (kept * stage.in_flight + (again if again > logits else 0.0)),
        "logits": tokens * (logits if logits >= again else 0.0),
        "passing": tokens * max((layer.passing for _, layer in kinds), default=0.0),
    }


def _forward_only(a: Architecture, w: Workload, layout: Layout, software: Software, stage: Stage) -> Parts:
    """One layer's activations at a time, and the logits."""
    tokens = w.sequence * w.micro_batch / layout.context
    layers = [layer.kept + layer.passing for _, layer in _kinds(a, w, layout, software, stage)]
    logits = logit_bytes(a, w, layout, software) if stage.head else 0.0
    return {"activations": tokens * max(layers, default=0.0), "logits": tokens * logits}


def _kinds(
    a: Architecture, w: Workload, layout: Layout, software: Software, stage: Stage
) -> list[tuple[float, LayerBytes]]:
    """How many layers of each kind the stage has, and what a token keeps in one."""
    dense, mixed = whole_layers(a, stage)
    return [
        (count, layer_bytes(a, w, layout, software, experts=experts))
        for count, experts in ((dense, False), (mixed, True))
        if count
    ]
