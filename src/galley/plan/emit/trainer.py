"""What tools on transformers' `Trainer` have in common: batch, optimiser, schedule and lengths (transformers 5)."""

from __future__ import annotations

from typing import Any

from galley.plan.emit.settings import FINAL_SHARE, Settings

OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd"}


def training_arguments(s: Settings, tool: str) -> dict[str, Any]:
    """Keys of `TrainingArguments`."""
    o = s.optimizer
    values: dict[str, Any] = {
        "per_device_train_batch_size": s.micro_batch,
        "gradient_accumulation_steps": s.accumulation,
        "max_steps": s.plan.steps,
        "learning_rate": o.learning_rate,
        **schedule(s),
        "warmup_steps": o.warmup_steps,
        "optim": optimizer(s, tool),
        "adam_beta1": o.betas[0],
        "adam_beta2": o.betas[1],
        "adam_epsilon": o.epsilon,
        "weight_decay": o.weight_decay,
        "max_grad_norm": o.clip,
        "bf16": s.precision == "bf16",
        "fp16": s.precision == "fp16",
        "seed": s.plan.seed,
        "logging_steps": 1,
    }
    if s.precision in ("fp8", "fp4"):
        s.cannot(tool, f"{s.precision} products", "set `mixed_precision` of accelerate")
        values["bf16"] = True
    if s.plan.device == "cpu":
        values["use_cpu"] = True
    return values


def optimizer(s: Settings, tool: str) -> str:
    """The name that transformers has for it."""
    name = OPTIMIZERS.get(s.optimizer.name)
    if name is None:
        s.cannot(tool, f"the optimizer {s.optimizer.name}", "adamw is written; its learning rate may not suit")
        return OPTIMIZERS["adamw"]
    return name


def schedule(s: Settings) -> dict[str, Any]:
    """Cosine and linear end at a tenth of the peak, wsd at zero."""
    kind, peak = s.optimizer.schedule, s.optimizer.learning_rate
    if kind == "cosine":
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": FINAL_SHARE}}
    if kind == "linear":
        return {
            "lr_scheduler_type": "polynomial",
            "lr_scheduler_kwargs": {"lr_end": float(f"{FINAL_SHARE * peak:.6g}"), "power": 1.0},
        }
    if kind == "wsd":
        kwargs = {"num_decay_steps": s.optimizer.decay_steps, "decay_type": "linear", "min_lr_ratio": 0.0}
        return {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": kwargs}
    return {"lr_scheduler_type": "constant_with_warmup"}


def data_note(s: Settings, key: str) -> None:
    """The plan knows how much data there is, not where the tool keeps it."""
    s.note(f"data: set {key} to the same rows; Galley reads formats that this tool may not")


def lengths_note(s: Settings) -> None:
    """Where rows are short, and the tool batches by rows."""
    if not s.packed and s.workload is None and s.plan.batch.packing:
        s.note(
            f"Galley fills micro-batches of {s.plan.batch.micro_batch_tokens:,} tokens; rows at once are set so that "
            "even rows of full length fit. The global batch counts rows, so documents are not merged into one row"
        )
