"""Judging plans of one job: memory and time of a candidate, whether it fits, and the least that anything needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from galley.plan.architecture import Architecture
from galley.plan.candidates import (
    Pins,
    layouts,
    least_state_bytes,
    micro_batches,
    offloads,
    precision,
    recomputes,
    shardings,
    tunings,
)
from galley.plan.layout import Layout
from galley.plan.memory_model import MemoryEstimate, estimate_memory
from galley.plan.software import Software
from galley.plan.time_model import TimeEstimate, estimate_time
from galley.plan.types import Hardware
from galley.plan.workload import Workload

SAFETY = 0.9
"""Of a device's memory that the need may fill."""


@dataclass(frozen=True)
class Choice:
    """A plan that was looked at.

    Args:
        workload: with tuning, precision, micro-batch, recomputation and offload decided.
        layout: over all devices.
        memory, time: what is expected of it.
    """

    workload: Workload
    layout: Layout
    memory: MemoryEstimate
    time: TimeEstimate

    @property
    def accumulation(self) -> int:
        """Micro-batches of each copy in a step."""
        return self.workload.global_batch // (self.workload.micro_batch * self.layout.data)

    @property
    def bytes(self) -> float:
        """What the fullest device must have: reserved memory, context and kernels."""
        return self.memory.fullest.needed

    def __str__(self) -> str:
        w, layout = self.workload, self.layout
        words = [w.tuning, str(w.precision), str(layout)]
        words += [f"{layout.virtual} pieces a stage"] if layout.virtual > 1 else []
        words += [f"shared by {layout.shards}"] if layout.shards else []
        words += [f"micro-batch {w.micro_batch} x {self.accumulation}"]
        words += [f"{w.recompute} recomputation"] if w.recompute != "none" else []
        words += ["optimizer on the host"] if w.offload_optimizer else []
        words += ["weights on the host"] if w.offload_parameters else []
        return ", ".join(words)


@dataclass
class Judge:
    """Estimates for one job, each made once.

    Args:
        architecture, hardware, software: of the job.
    """

    architecture: Architecture
    hardware: Hardware
    software: Software
    estimates: int = 0
    _memory: dict[tuple[Workload, Layout], MemoryEstimate] = field(default_factory=dict)

    @property
    def room(self) -> float:
        """Bytes of a device that may be filled."""
        return self.hardware.memory_bytes * SAFETY

    def memory(self, workload: Workload, layout: Layout) -> MemoryEstimate:
        """Of every stage."""
        key = (workload, layout)
        if key not in self._memory:
            self.estimates += 1
            self._memory[key] = estimate_memory(self.architecture, workload, layout, self.hardware, self.software)
        return self._memory[key]

    def time(self, workload: Workload, layout: Layout) -> TimeEstimate:
        """Of a step."""
        self.estimates += 1
        return estimate_time(self.architecture, workload, layout, self.hardware, self.software)

    def fits(self, workload: Workload, layout: Layout) -> bool:
        """Whether the fullest device has room, and the host for what it keeps."""
        if least_state_bytes(self.architecture, workload, layout) > self.room:
            return False
        if self.memory(workload, layout).fullest.needed > self.room:
            return False
        return self._host_need(workload, layout) <= self.hardware.host_memory_bytes * SAFETY

    def _host_need(self, workload: Workload, layout: Layout) -> float:
        """Bytes that a node's host keeps: what the device would hold otherwise."""
        if not (workload.offload_optimizer or workload.offload_parameters):
            return 0.0
        at_home = self.memory(replace(workload, offload_optimizer=False, offload_parameters=False), layout)
        kept = at_home.fullest.parts
        need = kept.get("optimizer", 0.0) if workload.offload_optimizer else 0.0
        need += kept.get("weights", 0.0) if workload.offload_parameters else 0.0
        return need * self.hardware.num_devices


@dataclass(frozen=True)
class Least:
    """The least that a way of training needs of a device.

    Args:
        bytes: infinite where no layout divides the job.
        fits: whether there is room for it.
        workload, layout: that need it; None where nothing divides.
    """

    bytes: float = math.inf
    fits: bool = False
    workload: Workload | None = None
    layout: Layout | None = None


def least_need(judge: Judge, wanted: Workload, pins: Pins) -> Least:
    """The first layout that fits at its smallest, else the one that needs least."""
    least = Least()
    for layout in layouts(judge.architecture, judge.hardware, wanted, pins):
        batches = micro_batches(wanted, layout, pins)
        if not batches:
            continue
        smallest = replace(wanted, micro_batch=batches[0], recompute=recomputes(wanted, pins)[-1])
        for shared in shared_layouts(layout, judge.hardware, pins):
            if least_state_bytes(judge.architecture, smallest, shared) >= least.bytes:
                continue
            need = judge.memory(smallest, shared).fullest.needed
            if judge.fits(smallest, shared):
                return Least(need, True, smallest, shared)
            if need < least.bytes:
                least = Least(need, False, smallest, shared)
    return least


def least_of_all(judge: Judge, workload: Workload, pins: Pins) -> Least:
    """Over all ways to tune and to use the host."""
    least = Least()
    for wanted in preferences(judge.hardware, workload, pins):
        here = least_need(judge, wanted, pins)
        if here.fits:
            return here
        least = min(least, here, key=lambda need: need.bytes)
    return least


def preferences(hardware: Hardware, workload: Workload, pins: Pins) -> Iterator[Workload]:
    """What is preferred, whatever its speed: the wanted tuning, without the host, then with it, then cheaper ones."""
    number = precision(hardware, workload, pins)
    kinds = offloads(pins) if hardware.device == "cuda" else offloads(pins)[:1]
    near = [kind for kind in kinds if not kind[1]] or list(kinds[:1])
    order = [(tuning, kind) for tuning in tunings(workload, pins) for kind in near]
    order += [(tuning, kind) for tuning in tunings(workload, pins) for kind in kinds if kind not in near]
    for tuning, (optimizer, parameters) in order:
        yield replace(
            workload,
            tuning=tuning,
            precision=number,
            master_bytes=0.0 if number == "fp32" else workload.master_bytes,
            offload_optimizer=optimizer,
            offload_parameters=parameters,
        )


def shared_layouts(layout: Layout, hardware: Hardware, pins: Pins) -> Iterator[Layout]:
    """With each way of sharing states between copies, and the pinned schedule."""
    virtual = pins.virtual or 1
    return (replace(shared, virtual=virtual) for shared in shardings(layout, hardware, pins))
