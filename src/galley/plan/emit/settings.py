"""A plan with its layout as the settings that every tool has to express, and a list of those that it cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from galley.plan.architecture import Architecture
from galley.plan.candidates import divisors
from galley.plan.layout import Layout
from galley.plan.types import AdapterPlan, OptimizerPlan, Plan
from galley.plan.workload import Workload

FINAL_SHARE = 0.1
"""Cosine and linear schedules end at this share of the peak, as Galley's do."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of one training.

    Args:
        plan: model, method, optimiser, schedule and lengths.
        layout: over devices; one device where none was searched.
        workload: of the search; without it the plan's own.
        architecture: the model's numbers, for tools that need them.
        data: what to write where the tool wants a name of the data.
        tuning, precision: as decided; precision is bf16, fp16 or fp32 (or fp8).
        sequence: tokens of the longest row.
        micro_batch: rows of a device at once.
        global_batch: rows of an optimiser step.
        recompute: none, selective or full.
        packed: several documents fill a row, and the batch counts such rows.
        notes: what the tool cannot express, filled while its files are written.
    """

    plan: Plan
    layout: Layout
    workload: Workload | None
    architecture: Architecture | None
    data: str
    tuning: str
    precision: str
    sequence: int
    micro_batch: int
    global_batch: int
    recompute: str
    packed: bool
    notes: list[str] = field(default_factory=list)

    @property
    def optimizer(self) -> OptimizerPlan:
        """With the schedule."""
        return self.plan.optimizer

    @property
    def adapter(self) -> AdapterPlan | None:
        """None where all weights learn."""
        return None if self.tuning == "full" else self.plan.adapter

    @property
    def accumulation(self) -> int:
        """Micro-batches of each copy in a step."""
        return self.global_batch // (self.micro_batch * self.layout.data)

    @property
    def offload_optimizer(self) -> bool:
        """To the host."""
        return self.workload is not None and self.workload.offload_optimizer

    @property
    def offload_parameters(self) -> bool:
        """To the host."""
        return self.workload is not None and self.workload.offload_parameters

    @property
    def nodes(self) -> int:
        """Nodes that the layout fills."""
        return max(1, math.ceil(self.layout.world / self.plan.hardware.num_devices))

    @property
    def replicas(self) -> int:
        """Groups that each hold all states once (HSDP); 1 where all copies share them."""
        return self.layout.data * self.layout.context // self.layout.sharded_over if self.layout.zero else 1

    def cannot(self, tool: str, what: str, instead: str = "") -> None:
        """Remember that the tool has no word for it."""
        self.notes.append(f"{tool} cannot express {what}" + (f": {instead}" if instead else ""))

    def note(self, text: str) -> None:
        """Remember something that the user has to do or know."""
        self.notes.append(text)


def settings(
    plan: Plan, layout: Layout | None, workload: Workload | None, architecture: Architecture | None, data: str
) -> Settings:
    """Of a plan, and of the search's layout and workload where there are any."""
    over = layout or Layout()
    return Settings(
        plan=plan,
        layout=over,
        workload=workload,
        architecture=architecture,
        data=data,
        tuning=workload.tuning if workload else plan.tuning,
        precision=str(workload.precision) if workload else plan.precision,
        sequence=workload.sequence if workload else plan.batch.max_length_tokens,
        micro_batch=workload.micro_batch if workload else _rows_at_once(plan, over.data),
        global_batch=workload.global_batch if workload else plan.batch.global_batch_rows,
        recompute=workload.recompute if workload else plan.checkpointing,
        packed=workload.packed if workload else plan.batch.packing and plan.method == "pretrain",
    )


def _rows_at_once(plan: Plan, data: int) -> int:
    """The most rows of full length that the plan's micro-batch holds, and that divide the global batch."""
    batch = plan.batch
    most = max(1, min(batch.micro_batch_rows, batch.micro_batch_tokens // max(1, batch.max_length_tokens)))
    return max(rows for rows in divisors(max(1, batch.global_batch_rows // data)) if rows <= most)
