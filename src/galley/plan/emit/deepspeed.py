"""DeepSpeed's `ds_config.json`. JSON has no comments, so what it cannot say is in `ds_config.notes.txt`."""

from __future__ import annotations

import json
from typing import Any

from galley.plan.emit import text
from galley.plan.emit.settings import FINAL_SHARE, Settings

METHODS: tuple[str, ...] = ()


def files(s: Settings) -> dict[str, str]:
    """`ds_config.json`, and its notes."""
    layout = s.layout
    values: dict[str, Any] = {
        "train_batch_size": s.global_batch,
        "train_micro_batch_size_per_gpu": s.micro_batch,
        "gradient_accumulation_steps": s.accumulation,
        "gradient_clipping": s.optimizer.clip,
        "steps_per_print": 10,
        "bf16": {"enabled": s.precision in ("bf16", "fp8", "fp4")},
        "fp16": {"enabled": s.precision == "fp16"},
        "zero_optimization": _zero(s),
        **_optimizer(s),
        **_schedule(s),
    }
    if layout.tensor > 1:
        values["tensor_parallel"] = {"autotp_size": layout.tensor}
    if layout.context > 1:
        values["sequence_parallel_size"] = layout.context
        s.note(f"context {layout.context}: DeepSpeed splits sequences by Ulysses attention in the training program")
    if s.recompute != "none":
        values["activation_checkpointing"] = {"partition_activations": layout.tensor > 1, "cpu_checkpointing": False}
        s.note(f"{s.recompute} recomputation: the model turns it on, e.g. model.gradient_checkpointing_enable()")
    _by_program(s)
    title = "Written by galley for DeepSpeed: deepspeed --deepspeed_config ds_config.json"
    return {
        "ds_config.json": json.dumps(values, indent=2) + "\n",
        "ds_config.notes.txt": text.comments([title, *s.notes]),
    }


def for_trainer(s: Settings) -> dict[str, str]:
    """`ds_config.json` for transformers' `Trainer`, whose own settings fill in batch, optimiser and schedule."""
    auto = "auto"
    values: dict[str, Any] = {
        "train_batch_size": auto,
        "train_micro_batch_size_per_gpu": auto,
        "gradient_accumulation_steps": auto,
        "gradient_clipping": auto,
        "bf16": {"enabled": auto},
        "fp16": {"enabled": auto},
        "zero_optimization": _zero(s),
    }
    if s.offload_optimizer:
        values["zero_force_ds_cpu_optimizer"] = False  # Trainer brings its own optimizer
    else:
        values["zero_allow_untested_optimizer"] = True
    written = {"ds_config.json": json.dumps(values, indent=2) + "\n"}
    return {**written, "ds_config.notes.txt": text.comments(s.notes)} if s.notes else written


def _zero(s: Settings) -> dict[str, Any]:
    layout = s.layout
    stage: int = layout.zero
    if s.offload_parameters and stage != 3:
        s.note("DeepSpeed moves weights to the host only at stage 3, which is written")
        stage = 3
    elif s.offload_optimizer and stage == 0:
        s.note("DeepSpeed moves the optimizer's states to the host only from stage 1 on, which is written")
        stage = 1
    values: dict[str, Any] = {"stage": stage}
    if stage:
        values |= {"overlap_comm": True, "contiguous_gradients": True}
    if stage == 3:
        values["stage3_gather_16bit_weights_on_model_save"] = True
        if layout.shards:
            values["zero_hpz_partition_size"] = layout.shards
            s.cannot(
                "deepspeed",
                f"states shared by {layout.shards} of {layout.data} copies",
                "ZeRO++ keeps a second copy of the weights in such a group, and shares the states among all",
            )
    if s.offload_optimizer:
        values["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if s.offload_parameters:
        values["offload_param"] = {"device": "cpu", "pin_memory": True}
    return values


def _optimizer(s: Settings) -> dict[str, Any]:
    o = s.optimizer
    if o.name == "adamw":
        params = {"lr": o.learning_rate, "betas": list(o.betas), "eps": o.epsilon, "weight_decay": o.weight_decay}
        return {"optimizer": {"type": "AdamW", "params": params}}
    if o.name in ("muon", "sgd"):
        momentum = 0.95 if o.name == "muon" else 0.9
        params = {"lr": o.learning_rate, "momentum": momentum, "weight_decay": o.weight_decay}
        return {"optimizer": {"type": {"muon": "Muon", "sgd": "SGD"}[o.name], "params": params}}
    s.cannot("deepspeed", f"the optimizer {o.name}", "give your own to deepspeed.initialize")
    return {"zero_allow_untested_optimizer": True}


def _schedule(s: Settings) -> dict[str, Any]:
    """Warm-up needs at least one step there."""
    o, steps = s.optimizer, s.plan.steps
    warmup = max(1, o.warmup_steps)
    if o.schedule == "cosine":
        params: dict[str, Any] = {"total_num_steps": steps, "warmup_num_steps": warmup, "warmup_type": "linear"}
        return {"scheduler": {"type": "WarmupCosineLR", "params": {**params, "cos_min_ratio": FINAL_SHARE}}}
    params = {"warmup_min_lr": 0.0, "warmup_max_lr": o.learning_rate, "warmup_num_steps": warmup}
    params["warmup_type"] = "linear"
    if o.schedule == "linear":
        s.cannot("deepspeed", f"a linear schedule that ends at {FINAL_SHARE:g} of the peak", "it ends at zero")
        return {"scheduler": {"type": "WarmupDecayLR", "params": {**params, "total_num_steps": steps}}}
    if o.schedule == "wsd":
        s.cannot("deepspeed", f"the last {o.decay_steps:,} steps of a wsd schedule", "the rate stays at its peak")
    return {"scheduler": {"type": "WarmupLR", "params": params}}


def _by_program(s: Settings) -> None:
    """What DeepSpeed leaves to the program that calls it."""
    layout, adapter = s.layout, s.adapter
    s.note(f"the training program sets {s.plan.steps:,} steps, rows of {s.sequence:,} tokens and seed {s.plan.seed}")
    if adapter is not None:
        targets = adapter.targets if isinstance(adapter.targets, str) else ", ".join(adapter.targets)
        s.note(
            f"{s.tuning}: the training program adds the adapter (PEFT) of rank {adapter.rank}, "
            f"alpha {adapter.alpha:g}, dropout {adapter.dropout:g}, on {targets}"
        )
    if layout.pipeline > 1:
        s.note(f"pipeline: PipelineModule(num_stages={layout.pipeline}) in the training program")
        if layout.virtual > 1:
            s.cannot("deepspeed", f"{layout.virtual} pieces of each stage", "its schedule is not interleaved")
        if layout.zero > 1:
            s.cannot("deepspeed", f"ZeRO-{layout.zero} beside a pipeline", "it refuses such a plan")
    if layout.expert > 1:
        s.note(f"experts: deepspeed.moe.layer.MoE(ep_size={layout.expert}) in the training program")
    if s.precision in ("fp8", "fp4"):
        s.cannot("deepspeed", f"{s.precision} products", "bf16 is written")
