"""Check emitted configurations with the real tools' own parsers, each in an environment of its own.

    python benchmarks/emit_check.py [--tool trl=PYTHON] [--tool llamafactory=PYTHON] [--tool accelerate=PYTHON] ...

For each tool with a Python interpreter that has it installed, plans (adapters on one GPU, all weights with FSDP, all
weights with ZeRO-2 and the optimiser on the host; tensor, pipeline and expert ways where the tool has them) are written
and read back by the tool: `TrlParser`, `HfArgumentParser` with LLaMA-Factory's arguments, accelerate's `ClusterConfig`
and its launcher's checks, `DeepSpeedConfig` and its schedules, and megatron-core's `TransformerConfig`,
`OptimizerConfig` and `DistributedDataParallelConfig`. Nothing is trained and no model is loaded. torchtitan and axolotl
are checked by unit tests only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from galley.data.dataset import DataStatistics
from galley.models.spec import ModelSpec
from galley.plan import Plan, decide, parse
from galley.plan.architecture import Architecture
from galley.plan.emit import emit
from galley.plan.layout import Layout
from galley.plan.published import known
from galley.plan.workload import Workload
from galley.recipe.schema import Recipe

ARCHITECTURE, MIXTURE = known("llama-3-8b"), known("mixtral-8x7b")
SPEC = ModelSpec(
    reference="meta-llama/Llama-3.1-8B-Instruct",
    kind="decoder",
    family="llama",
    source="hub",
    num_parameters=ARCHITECTURE.num_parameters,
    num_layers=ARCHITECTURE.layers,
    hidden_size=ARCHITECTURE.hidden,
    intermediate_size=ARCHITECTURE.ffn,
    num_heads=ARCHITECTURE.heads,
    num_kv_heads=ARCHITECTURE.kv_heads,
    vocab_size=ARCHITECTURE.vocab,
    max_positions=131_072,
)


def job(name: str) -> tuple[Plan, Layout | None, Workload | None, Architecture]:
    """Plans that between them use every kind of setting."""
    tuning = "full" if "full" in name or "megatron" in name else "qlora" if "qlora" in name else "lora"
    schedule = {"qlora": "linear", "full ZeRO-2, host": "wsd"}.get(name, "cosine")
    recipe = Recipe.model_validate(
        {
            "task": "chat",
            "model": SPEC.reference,
            "data": "faq.csv",
            "override": {"tuning": tuning, "global_batch": 64, "max_length": 2048},
            "optimizer": {"schedule": schedule},
            "budget": {"steps": 300},
            "hardware": "8x h200-141g",
        }
    )
    statistics = DataStatistics(
        rows=20_000,
        held_out_rows=1_000,
        characters=20_000 * 900,
        longest_characters=6_000,
        example_kind="conversation",
    )
    plan = decide(recipe, SPEC, statistics, parse("8x b200"))
    work = Workload(sequence=2048, micro_batch=2, global_batch=64, tuning="full", packed=False)
    layouts: dict[str, tuple[Layout, Workload, Architecture]] = {
        "full FSDP": (Layout(data=8, zero=3), _with(work, recompute="full"), ARCHITECTURE),
        "full FSDP, tensor": (Layout(data=4, tensor=2, zero=3), work, ARCHITECTURE),
        "full ZeRO-2, host": (Layout(data=8, zero=2), _with(work, offload_optimizer=True), ARCHITECTURE),
        "megatron dense": (
            Layout(tensor=2, pipeline=2, data=2, virtual=2, zero=1),
            _with(work, recompute="selective"),
            ARCHITECTURE,
        ),
        "megatron mixture": (Layout(data=8, expert=8, zero=1), _with(work, recompute="full"), MIXTURE),
    }
    layout, workload, architecture = layouts.get(name, (None, None, ARCHITECTURE))
    return plan, layout, workload, architecture


def _with(work: Workload, **changes: object) -> Workload:
    from dataclasses import replace

    return replace(work, **changes)  # type: ignore[arg-type]


JOBS = {
    "trl": ("lora", "qlora", "full FSDP", "full ZeRO-2, host"),
    "llamafactory": ("lora", "qlora", "full ZeRO-2, host"),
    "accelerate": ("lora", "full FSDP", "full FSDP, tensor", "full ZeRO-2, host"),
    "deepspeed": ("lora", "full FSDP", "full ZeRO-2, host"),
    "megatron": ("megatron dense", "megatron mixture"),
}

READ = {
    "trl": """
import sys
from dataclasses import asdict
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser
script, training, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(
    ["--config", "trl_sft.yaml", "--use_cpu", "true"])  # bf16 is refused where no GPU is
rows = training.per_device_train_batch_size * training.gradient_accumulation_steps
print("rows", rows, "length", training.max_length)
print("rate", training.learning_rate, str(training.lr_scheduler_type), training.lr_scheduler_kwargs)
print("adapter", model.use_peft, model.lora_r, model.lora_target_modules, model.load_in_4bit)
""",
    "llamafactory": """
import sys
from omegaconf import OmegaConf
from llamafactory.hparams.parser import _parse_train_args
values = OmegaConf.to_container(OmegaConf.load("llamafactory.yaml"))
values["use_cpu"] = True  # bf16 is refused where no GPU is
values.pop("deepspeed", None)  # its file is checked as deepspeed's; reading it here would need that package
model, data, training, tuning, generating = _parse_train_args(values)
rows = training.per_device_train_batch_size * training.gradient_accumulation_steps
print("rows", rows, "length", data.cutoff_len)
print("rate", training.learning_rate, str(training.lr_scheduler_type), training.lr_scheduler_kwargs)
print("adapter", tuning.finetuning_type, tuning.lora_rank, tuning.lora_target, model.quantization_bit)
""",
    "accelerate": """
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
config = load_config_from_file("accelerate.yaml")
args = launch_command_parser().parse_args(["--config_file", "accelerate.yaml", "program.py"])
try:
    args = _validate_launch_command(args)[0]
except ImportError as missing:  # DeepSpeed is not in this environment
    print("not validated further:", missing)
print(config.distributed_type, config.num_processes, config.mixed_precision)
print(config.fsdp_config, config.deepspeed_config, config.parallelism_config)
""",
    "deepspeed": """
import json, os
os.environ["DS_ACCELERATOR"] = "cpu"
from deepspeed.runtime.config import DeepSpeedConfig
class Mesh:
    pass
import deepspeed.runtime.config as module
values = json.load(open("ds_config.json"))
rows = values["train_micro_batch_size_per_gpu"] * values["gradient_accumulation_steps"]
devices = values["train_batch_size"] // rows
module.dist.is_initialized = lambda: True
module.dist.get_rank = lambda *a, **k: 0
module.dist.get_world_size = lambda *a, **k: devices
config = DeepSpeedConfig("ds_config.json")
print("rows", config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps)
print("zero", config.zero_config.stage, config.zero_config.offload_optimizer)
print("optimizer", config.optimizer_name, config.optimizer_params, config.scheduler_name)
from deepspeed.runtime import lr_schedules
import torch
optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=values["optimizer"]["params"]["lr"])
getattr(lr_schedules, config.scheduler_name)(optimizer, **config.scheduler_params)
""",
    "megatron": """
import dataclasses, shlex
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.transformer_config import MLATransformerConfig
text = open("megatron_args.sh").read()
words = [shlex.split(line) for line in text[text.index("(\\n") + 1 : text.rindex(")")].splitlines() if line.strip()]
said = {line[0][2:].replace("-", "_"): line[1] if len(line) > 1 else True for line in words}
other = {  # flags whose field has another name, or which the training script reads itself
    "num_query_groups": "num_query_groups", "group_query_attention": None, "swiglu": "gated_linear_unit",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size", "disable_bias_linear": None,
    "num_experts": "num_moe_experts",
}
by_script = {"micro_batch_size", "global_batch_size", "seq_length", "train_iters", "seed", "lr_decay_style",
    "lr_warmup_iters", "lr_decay_iters", "lr_wsd_decay_style", "lr_wsd_decay_iters", "max_position_embeddings",
    "position_embedding_type", "vocab_size", "untie_embeddings_and_output_weights", "use_flash_attn",
    "group_query_attention", "disable_bias_linear"}
def take(kind):
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values = {}
    for key, value in said.items():
        name = other.get(key, key) or ""
        if name not in fields:
            continue
        used.add(key)
        if value is not True:
            try:
                value = type(fields[name].default)(value) if fields[name].default is not None else int(value)
            except ValueError:
                pass
        values[name] = value
    return values
used = set()
model = take(TransformerConfig)
model.pop("moe_layer_freq", None)
if "moe_router_topk" in model:
    model["moe_router_topk"] = int(model["moe_router_topk"])
if "recompute_modules" in model:
    model["recompute_modules"] = model["recompute_modules"].split()
model["pipeline_dtype"] = __import__("torch").bfloat16
if "disable_bias_linear" in said:
    model["add_bias_linear"] = False
print(TransformerConfig(**model).pipeline_model_parallel_size)
print(OptimizerConfig(**take(OptimizerConfig)).lr)
print(DistributedDataParallelConfig(**take(DistributedDataParallelConfig)).use_distributed_optimizer)
unknown = set(said) - used - by_script
assert not unknown, unknown
""",
}


def main() -> None:
    """Print a line for each plan and tool; exit with 1 when a tool refuses one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", default=[], metavar="NAME=PYTHON", help="an interpreter that has it")
    parser.add_argument("--verbose", action="store_true", help="print what the tools read")
    args = parser.parse_args()
    failed = False
    for pair in args.tool:
        tool, _, python = pair.partition("=")
        for name in JOBS[tool]:
            problem, output = _check(tool, python, name)
            failed = failed or bool(problem)
            print(f"{tool:14}{name:22}{problem or 'accepted'}", flush=True)
            if args.verbose or problem:
                print("    " + output.strip().replace("\n", "\n    "))
    raise SystemExit(failed)


def _check(tool: str, python: str, name: str) -> tuple[str, str]:
    plan, layout, workload, architecture = job(name)
    files = emit(plan, tool, layout=layout, workload=workload, architecture=architecture, data="faq")
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        (Path(folder) / "read.py").write_text(READ[tool], encoding="utf-8")
        command = [*shlex.split(python), "read.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return f"refused ({done.stderr.strip().splitlines()[-1]})", json.dumps(list(files)) + done.stderr[-1500:]
    return "", done.stdout


if __name__ == "__main__":
    main()
