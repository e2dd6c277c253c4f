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


def recomputation(s: Settings, tool: str) -> dict[str, Any]:
    """Of whole layers, by transformers."""
    no_selective(s, tool)
    if s.recompute != "full":
        return {"gradient_checkpointing": False}
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}


def no_selective(s: Settings, tool: str) -> None:
    """None of these tools can recompute parts of a layer."""
    if s.recompute == "selective":
        s.cannot(tool, "selective recomputation", "flash attention recomputes the core of attention anyway")


def whole_alpha(s: Settings, tool: str) -> int:
    """The adapter's alpha, which these tools take as a whole number."""
    alpha = s.adapter.alpha if s.adapter else 0.0
    if alpha != int(alpha):
        s.cannot(tool, f"alpha {alpha:g}", f"{round(alpha)} is written")
    return round(alpha)


def row_notes(s: Settings, key: str) -> None:
    """The plan knows how many rows there are, not where the tool keeps them; and tools batch by rows, not by tokens."""
    s.note(f"data: set {key} to the same rows; Galley reads formats that this tool may not")
    if not s.packed and s.workload is None and s.plan.batch.packing:
        s.note(
            f"Galley fills micro-batches of {s.plan.batch.micro_batch_tokens:,} tokens; rows at once are set so that "
            "even rows of full length fit. The global batch counts rows, so documents are not merged into one row"
        )
