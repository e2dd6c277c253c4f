"""Rows of published runs as cases for the planner, in the column format of the published tables.

A row is used where it states enough; otherwise the reason is given. Nothing here is fitted to a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from galley.base import GalleyError
from galley.plan import hardware as hardware_names
from galley.plan.architecture import Architecture
from galley.plan.layout import Layout, Recompute
from galley.plan.software import FSDP, MEGATRON, NANOTRON, TRANSFORMERS, Software
from galley.plan.types import Hardware
from galley.plan.workload import Workload

Row = dict[str, str]
Stage = Literal["first", "last", "fullest"]

_SOURCES = (
    ("HF Ultra-Scale", "ultra-scale", NANOTRON),
    ("VIA-Research/vTrain", "vtrain", MEGATRON),
    ("NVIDIA-NeMo/Megatron-Bridge", "megatron-bridge", MEGATRON),
    ("NVIDIA/Megatron-LM", "megatron-lm", MEGATRON),
    ("mosaicml/llm-foundry", "llm-foundry", FSDP),
    ("Lightning-AI/litgpt", "litgpt", FSDP),
    ("huggingface/peft", "peft", TRANSFORMERS),
    ("AnswerDotAI/fsdp_qlora", "fsdp-qlora", FSDP),
    ("hpcaitech/ColossalAI", "colossalai", FSDP),
)
_GPUS = (
    (r"GB300", "gb300"),
    (r"GB200", "gb200"),
    (r"B300", "b300"),
    (r"B200", "b200"),
    (r"H200", "h200"),
    (r"H800", "h100-80g"),
    (r"H100", "h100-80g"),
    (r"A800|A100-80", "a100-80g"),
    (r"A100-40", "a100-40g"),
    (r"A100", "a100-80g"),
    (r"A10G?", "a10"),
    (r"L40S", "l40s"),
    (r"4090", "rtx4090"),
    (r"3090", "rtx3090"),
)


@dataclass(frozen=True)
class Case:
    """A published run.

    Args:
        source: short name of where it was published.
        row: as it stands in the table.
        stage: of the device whose memory was printed.
        ran: whether it ran; False where it ran out of memory (or crashed).
    """

    source: str
    row: Row
    architecture: Architecture
    workload: Workload
    layout: Layout
    hardware: Hardware
    software: Software
    stage: Stage
    ran: bool

    @property
    def memory_bytes(self) -> float | None:
        """Measured, of one device."""
        gib = _number(self.row, "measured_mem_gib_per_gpu")
        return gib * 2**30 if gib else None

    @property
    def seconds(self) -> float | None:
        """Measured, of a step."""
        step, rate = _number(self.row, "measured_step_time_s"), _number(self.row, "measured_tokens_per_s_per_gpu")
        if step:
            return step
        return self.workload.global_batch * self.workload.sequence / (rate * self.layout.world) if rate else None


def read(paths: list[Path]) -> list[Row]:
    """Rows of all tables; one that stands in two of them is taken once."""
    rows: dict[str, Row] = {}
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                rows.setdefault("|".join(value or "" for key, value in row.items() if key not in ("id", "source")), row)
    return list(rows.values())


def source_of(row: Row) -> tuple[str, Software]:
    """Short name of the source, and the engine that it ran."""
    for start, name, software in _SOURCES:
        if row["source"].startswith(start):
            return name, software
    return re.split(r"[@ ]", row["source"])[0] or "unsaid", MEGATRON


def case_of(row: Row) -> Case | str:
    """The case of a row, or why there is none."""
    source, software = source_of(row)
    if row["outcome"] == "estimate":
        return "an estimate, not a measurement"
    numbers = {name: int(_number(row, name) or 0) for name in ("layers", "hidden", "heads", "ffn", "vocab")}
    if not (numbers["layers"] and numbers["hidden"]):
        return "shape of the model is not stated"
    if not _number(row, "seq_len"):
        return "sequence is not stated"
    try:
        hardware = _hardware(row)
    except GalleyError:
        return f"device {row['gpu'] or 'unsaid'} is not in the catalogue"
    layout = _layout(row)
    if isinstance(layout, str):
        return layout
    return Case(
        source=source,
        row=row,
        architecture=_architecture(row, numbers),
        workload=_workload(row, layout),
        layout=layout,
        hardware=hardware,
        software=software,
        stage="last" if "last rank" in row["mem_kind"] else "first",
        ran=row["outcome"] in ("ok", "boundary", ""),
    )


def _architecture(row: Row, numbers: dict[str, int]) -> Architecture:
    """Shape of the model; a feed-forward net of four times the width has no gate."""
    hidden, ffn = numbers["hidden"], numbers["ffn"] or 4 * numbers["hidden"]
    return Architecture(
        layers=numbers["layers"],
        hidden=hidden,
        heads=numbers["heads"] or max(1, hidden // 128),
        kv_heads=int(_number(row, "kv_heads") or 0),
        ffn=ffn,
        vocab=numbers["vocab"] or 51200,
        gated="GPT" not in row["model"] and "MPT" not in row["model"] and "phi-1" not in row["model"],
        tied="GPT" in row["model"] or "MPT" in row["model"] or ("nanotron" in row["model"] and ffn < 10000),
    )


def _workload(row: Row, layout: Layout) -> Workload:
    micro = int(_number(row, "micro_batch") or 1)
    method = row["method"]
    tuning = "qlora" if "qlora" in method else "lora" if "lora" in method or method.startswith("peft") else "full"
    return Workload(
        sequence=int(_number(row, "seq_len") or 0),
        micro_batch=micro,
        global_batch=int(_number(row, "global_batch") or micro * layout.data),
        tuning=tuning,
        precision="fp16" if "fp16" in row["precision"] else "fp8" if "fp8" in row["precision"].lower() else "bf16",
        recompute=_recompute(row["act_ckpt"]),
    )


def _recompute(text: str) -> Recompute:
    word = text.split(" ")[0].split("(")[0]
    found: Recompute = word if word in get_args(Recompute) else "none"  # type: ignore[assignment]
    return found


def _layout(row: Row) -> Layout | str:
    devices = int(_number(row, "n_gpus") or 0)
    ways = {name: int(_number(row, name) or 1) for name in ("tp", "pp", "cp", "ep")}
    shared = ways["tp"] * ways["pp"] * ways["cp"]
    data = int(_number(row, "dp") or 0) or max(1, devices // shared)
    if devices and data * shared != devices:
        return "devices are not the product of the layout"
    text = row["zero_or_fsdp"].lower()
    zero: Literal[0, 1, 2, 3] = 0
    if "zero-3" in text or "fsdp" in text or "zero3" in text or "gemini" in text:
        zero = 3
    elif "zero2" in text or "zero-2" in text:
        zero = 2
    elif "zero-1" in text or "zero1" in text or "distributed optimizer" in text:
        zero = 1
    virtual = re.search(r"VPP? ?=? ?(\d+)", row["notes"])
    return Layout(
        tensor=ways["tp"],
        pipeline=ways["pp"],
        context=ways["cp"],
        expert=ways["ep"],
        data=data,
        zero=zero,
        virtual=int(virtual[1]) if virtual else 1,
    )


def _hardware(row: Row) -> Hardware:
    text = row["gpu"]
    name = next((name for pattern, name in _GPUS if re.search(pattern, text)), text or "unsaid")
    devices = int(_number(row, "n_gpus") or 1)
    node = min(8, devices)
    return hardware_names.parse(f"{-(-devices // node)} nodes x {node}x {name}")


def _number(row: Row, name: str) -> float | None:
    try:
        return float(row.get(name) or "")
    except ValueError:
        return None


def cells(cases: list[Case]) -> Iterator[tuple[tuple[str, int], list[Case]]]:
    """Runs of one model on one number of devices that differ only in their layout and micro-batch."""
    found: dict[tuple[str, int], list[Case]] = {}
    for case in cases:
        found.setdefault((case.row["model"], case.layout.world), []).append(case)
    yield from sorted(found.items())
