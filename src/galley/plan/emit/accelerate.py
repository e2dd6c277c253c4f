"""Accelerate's `accelerate launch --config_file FILE` (1.10 or newer, for `parallelism_config`)."""

from __future__ import annotations

from typing import Any

from galley.plan.emit import text
from galley.plan.emit.settings import Settings

METHODS: tuple[str, ...] = ()


def files(s: Settings) -> dict[str, str]:
    """`accelerate.yaml`."""
    layout = s.layout
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "NO",
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": s.precision if s.precision in ("bf16", "fp16", "fp8") else "no",
        "num_machines": s.nodes,
        "num_processes": layout.world,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": s.plan.device == "cpu",
    }
    values |= _kind(s)
    if layout.pipeline > 1:
        s.cannot("accelerate", f"{layout.pipeline} pipeline stages", "use Megatron or torchtitan for this layout")
    if layout.expert > 1:
        s.cannot("accelerate", f"experts over {layout.expert} devices", "they are shared like all weights")
    if s.nodes > 1:
        s.note("accelerate: set machine_rank and main_process_ip of each node")
    s.note(
        f"accelerate: the training program sets micro-batch {s.micro_batch}, accumulation {s.accumulation}, "
        f"learning rate {s.optimizer.learning_rate:g}, {s.optimizer.schedule} with {s.optimizer.warmup_steps:,} steps "
        f"of warm-up, {s.plan.steps:,} steps of {s.sequence:,} tokens a row and {_tuning(s)}"
    )
    title = "Written by galley for accelerate: accelerate launch --config_file accelerate.yaml PROGRAM"
    return {"accelerate.yaml": text.yaml(values, s.notes, title)}


def _kind(s: Settings) -> dict[str, Any]:
    layout = s.layout
    split = layout.tensor > 1 or layout.context > 1
    if layout.world == 1 and not (s.offload_optimizer or s.offload_parameters):
        return {}
    if s.plan.device == "cpu":
        return {"distributed_type": "MULTI_CPU"}
    if layout.zero == 3 or split:
        if not s.offload_optimizer or s.offload_parameters:
            return _fsdp(s)
        if split:
            s.cannot("accelerate", "offload of the optimizer alone beside tensor or context parallelism", "all go")
            return _fsdp(s)
    if layout.zero or s.offload_optimizer or s.offload_parameters:
        return _deepspeed(s)
    return {"distributed_type": "MULTI_GPU"}


def _fsdp(s: Settings) -> dict[str, Any]:
    layout = s.layout
    if layout.zero < 3:
        s.cannot("accelerate", f"ZeRO-{layout.zero} beside tensor or context parallelism", "weights are shared too")
    values: dict[str, Any] = {
        "distributed_type": "FSDP",
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": layout.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_offload_params": s.offload_optimizer or s.offload_parameters,
            "fsdp_activation_checkpointing": s.recompute == "full",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        },
    }
    if layout.data % s.replicas:
        s.cannot(
            "accelerate", f"states shared by {layout.shards} of the devices that share a sequence", "all share them"
        )
    if layout.tensor > 1 or layout.context > 1 or s.replicas > 1:
        replicas = s.replicas if layout.data % s.replicas == 0 else 1
        values["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": replicas,
            "parallelism_config_dp_shard_size": layout.data // replicas,
            "parallelism_config_tp_size": layout.tensor,
            "parallelism_config_cp_size": layout.context,
        }
    return values


def _deepspeed(s: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {
        "zero_stage": s.layout.zero or 2,
        "gradient_accumulation_steps": s.accumulation,
        "gradient_clipping": s.optimizer.clip,
        "offload_optimizer_device": "cpu" if s.offload_optimizer else "none",
        "offload_param_device": "cpu" if s.offload_parameters else "none",
        "zero3_init_flag": s.layout.zero == 3,
    }
    if s.offload_parameters and values["zero_stage"] != 3:
        s.note("accelerate: DeepSpeed moves weights to the host only at stage 3, which is written")
        values["zero_stage"] = 3
    if values["zero_stage"] == 3:
        values["zero3_save_16bit_model"] = True
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": values}


def _tuning(s: Settings) -> str:
    adapter = s.adapter
    return s.tuning if adapter is None else f"{s.tuning} of rank {adapter.rank} and alpha {adapter.alpha:g}"
