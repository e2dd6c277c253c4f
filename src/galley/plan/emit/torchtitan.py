"""torchtitan: a TOML file for versions that read one, and the same keys as flags for those with Python configs."""

from __future__ import annotations

from typing import Any

from galley.plan.emit import text
from galley.plan.emit.settings import FINAL_SHARE, Settings

METHODS = ("pretrain", "sft")


def files(s: Settings) -> dict[str, str]:
    """`torchtitan.toml` and `torchtitan.flags`."""
    tables = {
        "optimizer": _optimizer(s),
        "lr_scheduler": _schedule(s),
        "training": _training(s),
        "parallelism": _parallelism(s),
        "activation_checkpoint": {"mode": s.recompute},
    }
    _cannot(s)
    model = {
        "job": {"description": f"{s.plan.method} of {s.plan.model}, planned by galley"},
        "model": {"name": "llama3", "flavor": "8B"},
    }
    s.note(f"model: set name and flavor to torchtitan's own for {s.plan.model}")
    s.note(f"data: set training.dataset (or the dataloader) to the same rows as {s.data}")
    title = (
        "Written by galley for torchtitan up to 0.2: torchrun ... -m torchtitan.train --job.config_file torchtitan.toml"
    )
    return {"torchtitan.toml": text.toml({**model, **tables}, s.notes, title), "torchtitan.flags": _flags(s, tables)}


def _optimizer(s: Settings) -> dict[str, Any]:
    o = s.optimizer
    if o.name != "adamw":
        s.cannot("torchtitan", f"the optimizer {o.name}", "AdamW is written; its learning rate may not suit")
    return {
        "name": "AdamW",
        "lr": o.learning_rate,
        "beta1": o.betas[0],
        "beta2": o.betas[1],
        "eps": o.epsilon,
        "weight_decay": o.weight_decay,
    }


def _schedule(s: Settings) -> dict[str, Any]:
    """Without `decay_ratio` the rate falls from the end of the warm-up on."""
    o = s.optimizer
    values: dict[str, Any] = {"warmup_steps": o.warmup_steps}
    if o.schedule == "wsd":
        values |= {"decay_ratio": round(o.decay_steps / s.plan.steps, 6), "decay_type": "linear", "min_lr_factor": 0.0}
    elif o.schedule == "constant":
        values |= {"decay_type": "linear", "min_lr_factor": 1.0}
    else:
        values |= {"decay_type": o.schedule, "min_lr_factor": FINAL_SHARE}
    return values


def _training(s: Settings) -> dict[str, Any]:
    """With a pipeline, a step's rows go through it at once, cut into pieces of the micro-batch."""
    layout = s.layout
    pipelined = layout.pipeline > 1
    values: dict[str, Any] = {
        "local_batch_size": s.micro_batch * s.accumulation if pipelined else s.micro_batch,
        "global_batch_size": s.global_batch,
        "seq_len": s.sequence,
        "max_norm": s.optimizer.clip,
        "steps": s.plan.steps,
        "enable_cpu_offload": s.offload_optimizer or s.offload_parameters,
        "mixed_precision_param": "float32" if s.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
    }
    return values


def _parallelism(s: Settings) -> dict[str, Any]:
    layout = s.layout
    replicas = s.replicas if layout.data % s.replicas == 0 else 1
    shared = layout.zero > 0
    values: dict[str, Any] = {
        "data_parallel_replicate_degree": replicas if shared else layout.data,
        "data_parallel_shard_degree": layout.data // replicas if shared else 1,
        "fsdp_reshard_after_forward": "always" if layout.zero == 3 else "never",
        "tensor_parallel_degree": layout.tensor,
        "pipeline_parallel_degree": layout.pipeline,
        "context_parallel_degree": layout.context,
        "expert_parallel_degree": layout.expert,
    }
    if layout.pipeline > 1:
        values["pipeline_parallel_schedule"] = "Interleaved1F1B" if layout.virtual > 1 else "1F1B"
        values["pipeline_parallel_microbatch_size"] = s.micro_batch
        if layout.virtual > 1 and s.architecture is not None:
            pieces = layout.pipeline * layout.virtual
            values["pipeline_parallel_layers_per_stage"] = -(-s.architecture.layers // pieces)
    return values


def _cannot(s: Settings) -> None:
    layout, adapter = s.layout, s.adapter
    if adapter is not None:
        s.cannot(
            "torchtitan",
            f"{s.tuning} (rank {adapter.rank}, alpha {adapter.alpha:g}) in its configuration file",
            "newer versions have a LoRA converter for their Python configs; as written all weights learn",
        )
    if layout.zero in (1, 2):
        s.cannot(
            "torchtitan",
            f"ZeRO-{layout.zero}",
            "FSDP that keeps the gathered weights between passes is nearest (fsdp_reshard_after_forward never)",
        )
    if s.offload_optimizer and not s.offload_parameters:
        s.cannot("torchtitan", "offload of the optimizer alone", "weights go to the host too")
    if s.precision in ("fp16", "fp8", "fp4"):
        instead = "bf16 is written" if s.precision == "fp16" else f"bf16 is written; add the {s.precision} converter"
        s.cannot("torchtitan", f"{s.precision} products in these tables", instead)
    if not s.packed:
        s.note("torchtitan fills rows to seq_len with text end to end; Galley's batch counts single rows")


def _flags(s: Settings, tables: dict[str, dict[str, Any]]) -> str:
    """`--section.key value`; a switch has no value."""
    head = text.comments(
        [
            "The same for torchtitan with Python configs: ./run_train.sh --module llama3 --config llama3_8b "
            "$(grep -v '^#' torchtitan.flags). Its expert parallelism takes devices from FSDP and tensor parallelism",
        ]
    )
    lines = []
    for table, values in tables.items():
        for key, value in values.items():
            name = f"{table}.{key}"
            if isinstance(value, bool):
                part, _, last = name.rpartition(".")
                lines.append(f"--{name}" if value else f"--{part}.no_{last}")
            else:
                lines.append(f"--{name} {text.scalar(value)}")
    return head + "\n".join(lines) + "\n"
