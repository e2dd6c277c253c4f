"""LLaMA-Factory's `llamafactory-cli train FILE`, with DeepSpeed's or accelerate's configuration for several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from galley.plan.emit import accelerate, deepspeed, text
from galley.plan.emit.settings import Settings
from galley.plan.emit.trainer import no_selective, row_notes, training_arguments, whole_alpha

METHODS = ("sft", "pretrain")


def files(s: Settings) -> dict[str, str]:
    """`llamafactory.yaml`, and `ds_config.json` or `accelerate.yaml`."""
    values: dict[str, Any] = {
        "model_name_or_path": s.plan.model,
        "stage": "pt" if s.plan.method == "pretrain" else "sft",
        "do_train": True,
        **_tuning(s),
        "dataset": s.data,
        "cutoff_len": s.sequence,
        "packing": s.packed,
        "output_dir": "out",
        **training_arguments(s, "llamafactory"),
        # This tool recomputes all layers unless told otherwise.
        "disable_gradient_checkpointing": s.recompute != "full",
    }
    if s.packed and s.plan.method != "pretrain":
        values["neat_packing"] = True
    if s.plan.method != "pretrain":
        values["template"] = "default"
        s.note("template: set it to the model's own (llama3, qwen, ...); Galley takes the template of the tokenizer")
    no_selective(s, "llamafactory")
    row_notes(s, "dataset (a name in dataset_info.json)")
    beside = _layout(s, values)
    title = "Written by galley for LLaMA-Factory 0.9: llamafactory-cli train llamafactory.yaml"
    return {"llamafactory.yaml": text.yaml(values, s.notes, title), **beside}


def _tuning(s: Settings) -> dict[str, Any]:
    adapter = s.adapter
    if adapter is None:
        return {"finetuning_type": "full"}
    targets = adapter.targets if isinstance(adapter.targets, str) else ",".join(adapter.targets)
    values: dict[str, Any] = {
        "finetuning_type": "lora",
        "lora_rank": adapter.rank,
        "lora_alpha": whole_alpha(s, "llamafactory"),
        "lora_dropout": adapter.dropout,
        "lora_target": "all" if targets == "all-linear" else targets,
    }
    if s.tuning == "dora":
        values["use_dora"] = True
    if s.tuning == "qlora":
        values |= {"quantization_bit": 4, "quantization_method": "bnb", "quantization_type": "nf4"}
        values["double_quantization"] = True
    return values


def _layout(s: Settings, values: dict[str, Any]) -> dict[str, str]:
    """Files beside; they have notes of their own."""
    layout = s.layout
    for name, ways in (("tensor", layout.tensor), ("pipeline", layout.pipeline), ("context", layout.context)):
        if ways > 1:
            s.cannot("llamafactory", f"{name} {ways}", "use torchtitan or megatron for this layout")
    own = replace(s, notes=[])
    if layout.zero or s.offload_optimizer or s.offload_parameters:
        values["deepspeed"] = "ds_config.json"
        return deepspeed.for_trainer(own)
    if layout.world > 1:
        s.note(f"start it on {layout.world} devices with accelerate.yaml")
        return accelerate.files(own)
    return {}
