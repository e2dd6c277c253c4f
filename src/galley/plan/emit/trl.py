"""TRL's `trl sft --config FILE`, with accelerate's configuration beside it where there are several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from galley.plan.emit import accelerate, text
from galley.plan.emit.settings import Settings
from galley.plan.emit.trainer import recomputation, row_notes, training_arguments, whole_alpha

METHODS = ("sft", "pretrain")


def files(s: Settings) -> dict[str, str]:
    """`trl_sft.yaml`, and `accelerate.yaml`."""
    values: dict[str, Any] = {
        "model_name_or_path": s.plan.model,
        "dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(s.precision, "bfloat16"),
        "dataset_name": s.data,
        "output_dir": "out",
        "max_length": s.sequence,
        "packing": s.packed,
    }
    if s.packed:
        values["packing_strategy"] = "wrapped" if s.plan.method == "pretrain" else "bfd"
    elif s.plan.batch.packing and s.plan.device != "cpu":
        values["padding_free"] = True
        values["attn_implementation"] = "flash_attention_2"
    values |= _adapter(s)
    values |= training_arguments(s, "trl")
    values |= recomputation(s, "trl")
    row_notes(s, "dataset_name")
    beside: dict[str, str] = {}
    command = "trl sft --config trl_sft.yaml"
    if s.layout.world > 1:
        command += " --accelerate_config accelerate.yaml"
        s.note("the layout over devices is in accelerate.yaml")
        beside = accelerate.files(replace(s, notes=[]))
    title = f"Written by galley for TRL 1.x: {command}"
    return {"trl_sft.yaml": text.yaml(values, s.notes, title), **beside}


def _adapter(s: Settings) -> dict[str, Any]:
    adapter = s.adapter
    if adapter is None:
        return {}
    targets = adapter.targets if isinstance(adapter.targets, str) else list(adapter.targets)
    values: dict[str, Any] = {
        "use_peft": True,
        "lora_r": adapter.rank,
        "lora_alpha": whole_alpha(s, "trl"),
        "lora_dropout": adapter.dropout,
        "lora_target_modules": [targets] if isinstance(targets, str) else targets,
    }
    if s.tuning == "dora":
        values["use_dora"] = True
    if s.tuning == "qlora":
        values |= {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}
    return values
