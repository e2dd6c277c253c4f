"""Rows of published runs as cases for the planner, in the column format of the published tables.

A row is used where it states enough; otherwise the reason is given. Nothing here is fitted to a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from galley.base import GalleyError
from galley.plan import hardware as hardware_names
from galley.plan.architecture import Architecture
from galley.plan.layout import Layout, Recompute
from galley.plan.published import lookup
from galley.plan.software import (
    COLOSSAL,
    FSDP,
    FSDP_QLORA,
    LITGPT,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    NANOTRON,
    TRANSFORMERS,
    Software,
)
from galley.plan.types import Hardware
from galley.plan.workload import Workload
from galley.recipe.schema import Tuning

_SHORTER = 0.9

Row = dict[str, str]
Stage = Literal["first", "last", "fullest"]

_SOURCES = (
    ("HF Ultra-Scale", "ultra-scale", NANOTRON),
    ("VIA-Research/vTrain", "vtrain", MEGATRON_DEEPSPEED),
    ("NVIDIA-NeMo/Megatron-Bridge", "megatron-bridge", MEGATRON),
    ("NVIDIA/Megatron-LM", "megatron-lm", MEGATRON),
    ("mosaicml/llm-foundry", "llm-foundry", FSDP),
    ("Lightning-AI/litgpt", "litgpt", LITGPT),
    ("huggingface/peft", "peft", TRANSFORMERS),
    ("AnswerDotAI/fsdp_qlora", "fsdp-qlora", FSDP_QLORA),
    ("hpcaitech/ColossalAI", "colossalai", COLOSSAL),
)
_NORMS_FP32 = ("litgpt", "fsdp-qlora", "colossalai")
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
        """Measured, of one device; None where the row does not say what decides it."""
        gib = _number(self.row, "measured_mem_gib_per_gpu")
        return gib * 2**30 if gib and not self.memory_gap else None

    @property
    def memory_gap(self) -> str:
        """What is missing to predict its memory, where that was measured; empty where nothing is."""
        if not _number(self.row, "measured_mem_gib_per_gpu"):
            return ""
        if not (_number(self.row, "n_gpus") or _number(self.row, "dp")):
            return "memory: devices are not stated, so what ZeRO shares is not known"
        if not _number(self.row, "micro_batch"):
            return "memory: micro-batch is not stated"
        return "memory: rollouts of PPO are not stated" if self.row["method"] == "ppo" else ""

    @property
    def seconds(self) -> float | None:
        """Measured, of a step; None where the work of a step is not stated: its rows, or how long they are."""
        if not _number(self.row, "global_batch") or "LONGEST" in self.row["notes"]:
            return None
        step, rate = _number(self.row, "measured_step_time_s"), _number(self.row, "measured_tokens_per_s_per_gpu")
        if step:
            return step
        return self.workload.global_batch * self.workload.sequence / (rate * self.layout.world) if rate else None

    @property
    def timed(self) -> Workload:
        """What the measured step computed: rows shorter than the longest, where speed and time together say so."""
        step, rate = _number(self.row, "measured_step_time_s"), _number(self.row, "measured_tokens_per_s_per_gpu")
        if not step or not rate:
            return self.workload
        mean = round(step * rate * self.layout.world / self.workload.global_batch)
        if not 16 <= mean <= _SHORTER * self.workload.sequence:
            return self.workload
        return replace(self.workload, sequence=mean)


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
    mixture = row["ep"] not in ("", "1") or re.search(r"mixtral|moe|nemotron6_3b|deepseek", row["model"].lower())
    known = None
    if mixture or not (numbers["layers"] and numbers["hidden"]):
        known = _by_name(row["model"], source)
    if not known and not (numbers["layers"] and numbers["hidden"]):
        return "shape of the model is not stated"
    if not _number(row, "seq_len"):
        return "sequence is not stated"
    if mixture and not known:
        return "experts of the mixture are not stated"
    layout = _layout(row)
    if isinstance(layout, str):
        return layout
    try:
        hardware = _hardware(row, layout)
    except GalleyError:
        return f"device {row['gpu'] or 'unsaid'} is not in the catalogue"
    return Case(
        source=source,
        row=row,
        architecture=known or _architecture(row, numbers, source),
        workload=_workload(row, layout, source),
        layout=layout,
        hardware=hardware,
        software=software,
        stage="last" if "last rank" in row["mem_kind"] else "first",
        ran=row["outcome"] in ("ok", "boundary", ""),
    )


def _by_name(name: str, source: str) -> Architecture | None:
    """A published model's shape, with the norms of the engine that ran it rather than of transformers."""
    found = lookup(name)
    return replace(found, norm_fp32=found.norm_fp32 and source in _NORMS_FP32) if found else None


def _architecture(row: Row, numbers: dict[str, int], source: str) -> Architecture:
    """Shape of the model; a feed-forward net of four times the width has no gate."""
    hidden, ffn = numbers["hidden"], numbers["ffn"] or 4 * numbers["hidden"]
    found = Architecture(
        layers=numbers["layers"],
        hidden=hidden,
        heads=numbers["heads"] or max(1, hidden // 128),
        kv_heads=int(_number(row, "kv_heads") or 0),
        ffn=ffn,
        vocab=numbers["vocab"] or 51200,
        gated=not any(name in row["model"] for name in ("GPT", "MPT", "phi-", "gpt:")),
        norm_fp32=source in _NORMS_FP32,
        tied="GPT" in row["model"] or "MPT" in row["model"] or ("nanotron" in row["model"] and ffn < 10000),
    )
    stated = (_number(row, "params_b") or 0.0) * 1e9
    if stated and source not in ("ultra-scale", "vtrain"):
        tied = replace(found, tied=True)
        if abs(tied.num_parameters - stated) < abs(found.num_parameters - stated):
            return tied
    return found


def _workload(row: Row, layout: Layout, source: str) -> Workload:
    """What a step computes. A pair of DPO, SimPO or ORPO is two rows; DPO keeps a reference, PPO three more models."""
    micro = int(_number(row, "micro_batch") or 1)
    method, zero = row["method"], row["zero_or_fsdp"].lower()
    tuning: Tuning = "qlora" if "qlora" in method else "lora" if "lora" in method or _is_adapter(method) else "full"
    if "nf4" in row["precision"]:
        tuning = "qlora"
    paired = 2 if method in ("dpo", "simpo", "orpo") else 1
    rank = re.search(r"\b(?:lora_)?r(?:ank)?=(\d+)", row["notes"])
    masters = _MASTERS.get(source, (4.0, 4.0, None))
    return Workload(
        sequence=int(_number(row, "seq_len") or 0),
        micro_batch=micro * paired,
        global_batch=int(_number(row, "global_batch") or micro * layout.data) * paired,
        tuning=tuning,
        rank=int(rank[1]) if rank else _RANKS.get(source, 16),
        targets="all" if source in ("fsdp-qlora", "colossalai") else "query-value",
        precision=_precision(row),
        recompute=_recompute(row["act_ckpt"]),
        master_bytes=masters[0],
        gradient_bytes=masters[1],
        moment_bytes=masters[2],
        offload_optimizer="cpu" in zero and "param" not in zero,
        offload_parameters="param offload" in zero or ("offload" in zero and "no offload" not in zero),
        frozen_models={"dpo": 1.0, "ppo": 2.0}.get(method, 0.0),
        learning_models=1.0 if method == "ppo" else 0.0,
        fused_attention=source != "vtrain",
        attention_dropout="gpt3" in row["model"],
        expert_imbalance=1.0 if "balanced routing" in row["notes"] else 1.2,
    )


def _precision(row: Row) -> str:
    """Of the products. Where a cell prints two, the tables give them as `FP8-CS (FP8-MX)`: the first is stored."""
    text = row["precision"].lower()
    if not text and ("second precision" in row["notes"] or row["notes"].startswith("printed ")):
        return "fp8"
    return next((name for name in ("fp16", "fp8", "fp4") if name in text), "bf16")


def _is_adapter(method: str) -> bool:
    """Other adapters are taken for LoRA; those that learn the whole model's subspace are not."""
    return method.startswith(("peft", "adapter")) and method != "peft:osf"


_RANKS = {"litgpt": 8, "fsdp-qlora": 64, "peft": 32}
_MASTERS: dict[str, tuple[float, float, float | None]] = {
    # bytes of master weights, gradients, and Adam's moments (None: float32)
    "litgpt": (0.0, 2.0, 4.0),  # bf16-true: everything is bf16
    "peft": (0.0, 2.0, 4.0),  # bf16 weights are updated in place
    "colossalai": (4.0, 2.0, None),
    "fsdp-qlora": (0.0, 2.0, 4.0),
}


def _recompute(text: str) -> Recompute:
    word = re.split(r"[ (]", text, maxsplit=1)[0]
    found: Recompute = word if word in get_args(Recompute) else "none"  # type: ignore[assignment]
    return found


def _layout(row: Row) -> Layout | str:
    devices = int(_number(row, "n_gpus") or 0)
    ways = {name: int(_number(row, name) or 1) for name in ("tp", "pp", "cp", "ep")}
    if "All runs are single-GPU experiments" in row["zero_or_fsdp"]:
        return Layout()
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
    pieces = int(virtual[1]) if virtual else 1
    flagged = "flags: " in row["notes"]
    layers = re.search(r"vpp=(\d+)", row["notes"])
    if flagged and layers:  # Megatron-LM's option counts the layers of a piece
        pieces = max(1, int(_number(row, "layers") or 1) // (ways["pp"] * int(layers[1])))
    return Layout(
        tensor=ways["tp"],
        pipeline=ways["pp"],
        context=ways["cp"],
        expert=ways["ep"],
        data=data,
        zero=zero,
        virtual=pieces if ways["pp"] > 1 else 1,
        sequence_parallel=not flagged or "sequence-parallel" in row["notes"],
    )


def _hardware(row: Row, layout: Layout) -> Hardware:
    text = row["gpu"]
    name = next((name for pattern, name in _GPUS if re.search(pattern, text)), text or "unsaid")
    devices = int(_number(row, "n_gpus") or layout.world)
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
