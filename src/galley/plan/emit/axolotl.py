"""Axolotl's `axolotl train FILE`, with DeepSpeed's configuration where states are shared without FSDP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from galley.plan.emit import deepspeed, text
from galley.plan.emit.settings import FINAL_SHARE, Settings
from galley.plan.emit.trainer import optimizer, recomputation, row_notes, schedule, whole_alpha

METHODS = ("sft", "pretrain")


def files(s: Settings) -> dict[str, str]:
    """`axolotl.yaml`, and `ds_config.json` for ZeRO-1 and 2."""
    o = s.optimizer
    pretrain = s.plan.method == "pretrain"
    values: dict[str, Any] = {
        "base_model": s.plan.model,
        **_tuning(s),
        "datasets": [{"path": s.data, "type": "completion" if pretrain else "chat_template"}],
        "output_dir": "out",
        "sequence_len": s.sequence,
        "sample_packing": s.packed,
        "micro_batch_size": s.micro_batch,
        "gradient_accumulation_steps": s.accumulation,
        "max_steps": s.plan.steps,
        "optimizer": optimizer(s, "axolotl"),
        "learning_rate": o.learning_rate,
        **_schedule(s),
        "warmup_steps": o.warmup_steps,
        "weight_decay": o.weight_decay,
        "adam_beta1": o.betas[0],
        "adam_beta2": o.betas[1],
        "adam_epsilon": o.epsilon,
        "max_grad_norm": o.clip,
        "bf16": s.precision in ("bf16", "fp8"),
        "fp16": s.precision == "fp16",
        **recomputation(s, "axolotl"),
        "flash_attention": s.plan.device != "cpu",
        "seed": s.plan.seed,
        "logging_steps": 1,
    }
    if s.precision == "fp8":
        values["fp8"] = True
    row_notes(s, "datasets")
    beside = _layout(s, values)
    title = "Written by galley for axolotl: axolotl train axolotl.yaml"
    return {"axolotl.yaml": text.yaml(values, s.notes, title), **beside}


def _tuning(s: Settings) -> dict[str, Any]:
    adapter = s.adapter
    if adapter is None:
        return {}
    values: dict[str, Any] = {
        "adapter": "qlora" if s.tuning == "qlora" else "lora",
        "lora_r": adapter.rank,
        "lora_alpha": whole_alpha(s, "axolotl"),
        "lora_dropout": adapter.dropout,
    }
    if adapter.targets == "all-linear":
        values["lora_target_linear"] = True
    else:
        values["lora_target_modules"] = [adapter.targets] if isinstance(adapter.targets, str) else [*adapter.targets]
    if s.tuning == "qlora":
        values["load_in_4bit"] = True
    if s.tuning == "dora":
        values["peft_use_dora"] = True
    return values


def _schedule(s: Settings) -> dict[str, Any]:
    """It has a word of its own for the end of a cosine."""
    if s.optimizer.schedule == "cosine":
        return {"lr_scheduler": "cosine", "cosine_min_lr_ratio": FINAL_SHARE}
    return {key.replace("lr_scheduler_type", "lr_scheduler"): value for key, value in schedule(s).items()}


def _layout(s: Settings, values: dict[str, Any]) -> dict[str, str]:
    layout = s.layout
    if layout.pipeline > 1:
        s.cannot("axolotl", f"{layout.pipeline} pipeline stages", "use torchtitan or megatron for this layout")
    if layout.expert > 1:
        values["expert_parallel_size"] = layout.expert
        s.note("experts over devices need a recent axolotl; older ones share them like all weights")
    split = layout.tensor > 1 or layout.context > 1
    alone = s.offload_optimizer and not s.offload_parameters
    if not split and (layout.zero in (1, 2) or alone or (s.offload_parameters and layout.world == 1)):
        values["deepspeed"] = "ds_config.json"
        return deepspeed.for_trainer(replace(s, notes=[]))
    if layout.zero == 3 or split:
        replicas = s.replicas if layout.data % s.replicas == 0 else 1
        values |= {"dp_replicate_size": replicas, "dp_shard_size": layout.data // replicas}
        values |= {"tensor_parallel_size": layout.tensor} if layout.tensor > 1 else {}
        values |= {"context_parallel_size": layout.context} if layout.context > 1 else {}
        values |= {
            "fsdp_version": 2,
            "fsdp_config": {
                "reshard_after_forward": layout.zero == 3,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "offload_params": s.offload_optimizer or s.offload_parameters,
                "cpu_ram_efficient_loading": True,
                "state_dict_type": "SHARDED_STATE_DICT",
                "activation_checkpointing": s.recompute == "full",
            },
        }
        s.note("fsdp_config: set transformer_layer_cls_to_wrap to the model's layer, e.g. LlamaDecoderLayer")
        if s.recompute == "full":
            # The two ways of recomputing exclude each other.
            values["gradient_checkpointing"] = False
            values.pop("gradient_checkpointing_kwargs", None)
        if layout.zero in (1, 2):
            s.cannot("axolotl", f"ZeRO-{layout.zero} beside tensor or context parallelism", "weights are shared too")
        if alone:
            s.cannot("axolotl", "offload of the optimizer alone with FSDP", "weights go to the host too")
    return {}
