"""Plans as other tools' configurations."""

from __future__ import annotations

import io
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from galley.base import GalleyError
from galley.cli.verbs import plan as verb
from galley.plan import Plan, parse
from galley.plan.emit import TOOLS, emit
from galley.plan.layout import Layout
from galley.plan.published import known
from galley.plan.workload import Workload
from plan.cases import LLAMA_8B, NET, plan, recipe, statistics

pytestmark = pytest.mark.unit

ARCHITECTURE, MIXTURE = known("llama-3-8b"), known("deepseek-v3")
DEEP = Layout(tensor=4, pipeline=2, data=4, context=2, virtual=4, zero=1)
WORK = Workload(sequence=8192, micro_batch=2, global_batch=64, recompute="full")


def job(**sections: Any) -> Plan:
    sections.setdefault("optimizer", {"learning_rate": 2e-5, "warmup": 10, "betas": [0.9, 0.95]})
    return plan(recipe(budget={"steps": 200}, seed=3, **sections), LLAMA_8B, hardware=parse("8x h100-80g"))


def read(text: str) -> dict[str, Any]:
    """As YAML 1.1, which most of the tools read."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    values: dict[str, Any] = yaml.load(io.StringIO("%YAML 1.1\n---\n" + text))
    return values


def flags(text: str) -> dict[str, str]:
    """Flags of Megatron with their values."""
    body = text[text.index("(\n") + 1 : text.rindex(")")]
    words = [shlex.split(line) for line in body.splitlines() if line.strip()]
    return {line[0]: " ".join(line[1:]) for line in words}


def test_the_verb_knows_the_same_tools() -> None:
    assert verb.TOOLS == TOOLS


@pytest.mark.parametrize("tool", TOOLS)
def test_an_adapter_is_never_dropped_silently(tool: str) -> None:
    made = job(override={"tuning": "lora", "rank": 24, "alpha": 48, "targets": ["q_proj", "v_proj"]})
    words = " ".join("".join(emit(made, tool).values()).replace("# ", " ").split())
    assert "lora" in words
    assert "24" in words
    assert "48" in words


@pytest.mark.parametrize("tool", TOOLS)
def test_the_global_batch_and_the_layout_are_kept(tool: str) -> None:
    files = emit(job(), tool, layout=DEEP, workload=WORK, architecture=ARCHITECTURE)
    first = next(iter(files.values()))
    all_text = "".join(files.values())
    if tool in ("trl", "llamafactory", "axolotl", "accelerate"):
        values = read(first)
        if tool == "accelerate":
            assert values["num_processes"] == DEEP.world == 64
            assert values["parallelism_config"]["parallelism_config_tp_size"] == 4
            assert values["parallelism_config"]["parallelism_config_cp_size"] == 2
        else:
            rows = values.get("per_device_train_batch_size", values.get("micro_batch_size"))
            assert rows * values["gradient_accumulation_steps"] * DEEP.data == 64
        assert "cannot express" in all_text, "a pipeline"
    elif tool == "deepspeed":
        values = json.loads(first)
        assert values["train_batch_size"] == 64
        assert values["train_micro_batch_size_per_gpu"] * values["gradient_accumulation_steps"] * DEEP.data == 64
        assert values["tensor_parallel"] == {"autotp_size": 4}
        assert "num_stages=2" in files["ds_config.notes.txt"]
    elif tool == "torchtitan":
        ways = tomllib.loads(first)["parallelism"]
        assert ways["tensor_parallel_degree"] * ways["pipeline_parallel_degree"] == 8
        assert ways["data_parallel_replicate_degree"] * ways["data_parallel_shard_degree"] == 4
        assert ways["pipeline_parallel_schedule"] == "Interleaved1F1B"
        assert ways["pipeline_parallel_layers_per_stage"] == 4
        training = tomllib.loads(first)["training"]
        assert (training["local_batch_size"], training["global_batch_size"]) == (16, 64)
    else:
        said = flags(first)
        assert said["--global-batch-size"] == "64"
        assert said["--num-virtual-stages-per-pipeline-rank"] == "4"
        assert "--sequence-parallel" in said


def test_trl_says_everything_of_a_small_plan() -> None:
    made = job(override={"tuning": "qlora", "rank": 8, "global_batch": 16, "max_length": 1024, "micro_batch": 4})
    files = emit(made, "trl", data="faq.csv")
    assert list(files) == ["trl_sft.yaml"]
    values = read(files["trl_sft.yaml"])
    wanted = {
        "dataset_name": "faq.csv",
        "max_length": 1024,
        "use_peft": True,
        "lora_r": 8,
        "load_in_4bit": True,
        "lora_target_modules": ["all-linear"],
        "learning_rate": 2e-5,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": 10,
        "max_steps": 200,
        "adam_beta2": 0.95,
        "bf16": True,
        "seed": 3,
        "packing": False,
        "padding_free": True,
    }
    assert {key: values[key] for key in wanted} == wanted
    assert values["per_device_train_batch_size"] * values["gradient_accumulation_steps"] == 16


def test_small_numbers_stay_numbers_for_yaml_1_1() -> None:
    values = read(emit(job(), "axolotl")["axolotl.yaml"])
    assert values["learning_rate"] == 2e-5
    assert values["adam_epsilon"] == 1e-8


def test_llamafactory_is_told_not_to_recompute() -> None:
    values = read(emit(job(), "llamafactory")["llamafactory.yaml"])
    assert values["disable_gradient_checkpointing"] is True
    again = read(emit(job(override={"checkpointing": "full"}), "llamafactory")["llamafactory.yaml"])
    assert again["disable_gradient_checkpointing"] is False
    assert values["lora_target"] == "all"


@pytest.mark.parametrize(
    ("zero", "offload", "kind"),
    [(0, False, "MULTI_GPU"), (1, False, "DEEPSPEED"), (3, False, "FSDP"), (3, True, "FSDP")],
)
def test_accelerate_takes_the_engine_that_shares_the_same(zero: Any, offload: bool, kind: str) -> None:
    work = Workload(sequence=1024, global_batch=8, offload_optimizer=offload, offload_parameters=offload)
    values = read(emit(job(), "accelerate", layout=Layout(data=8, zero=zero), workload=work)["accelerate.yaml"])
    assert values["distributed_type"] == kind
    assert values["mixed_precision"] == "bf16"
    if kind == "FSDP":
        assert values["fsdp_config"]["fsdp_offload_params"] is offload
    if kind == "DEEPSPEED":
        assert values["deepspeed_config"]["zero_stage"] == zero


def test_deepspeed_offloads_only_what_the_plan_does() -> None:
    work = Workload(sequence=1024, micro_batch=2, global_batch=32, offload_optimizer=True)
    files = emit(job(), "deepspeed", layout=Layout(data=8, zero=2), workload=work)
    zero = json.loads(files["ds_config.json"])["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]["device"], "offload_param" in zero) == (2, "cpu", False)


def test_deepspeed_lists_what_it_cannot_say() -> None:
    made = job(optimizer={"name": "adamw-8bit", "schedule": "wsd"})
    notes = " ".join(emit(made, "deepspeed")["ds_config.notes.txt"].replace("\n#  ", "").split())
    assert "cannot express the optimizer adamw-8bit" in notes
    assert "of a wsd schedule" in notes


def test_hybrid_sharding_is_replicas_times_shards() -> None:
    layout = Layout(data=32, zero=3, shards=8)
    work = Workload(sequence=1024, global_batch=64)
    titan = tomllib.loads(emit(job(), "torchtitan", layout=layout, workload=work)["torchtitan.toml"])["parallelism"]
    assert (titan["data_parallel_replicate_degree"], titan["data_parallel_shard_degree"]) == (4, 8)
    axolotl = read(emit(job(), "axolotl", layout=layout, workload=work)["axolotl.yaml"])
    assert (axolotl["dp_replicate_size"], axolotl["dp_shard_size"]) == (4, 8)


def test_megatron_gets_the_model_and_its_experts() -> None:
    layout = Layout(pipeline=16, data=128, expert=64, zero=1)
    work = Workload(sequence=4096, global_batch=8192, recompute="selective")
    text = emit(job(), "megatron", layout=layout, workload=work, architecture=MIXTURE)["megatron_args.sh"]
    said = flags(text)
    wanted = {
        "--num-layers": "61",
        "--pipeline-model-parallel-size": "16",
        "--expert-model-parallel-size": "64",
        "--moe-router-topk": "8",
        "--moe-layer-freq": "([0]*3+[1]*58)",
        "--kv-lora-rank": "512",
        "--qk-head-dim": "128",
        "--recompute-granularity": "selective",
        "--lr-warmup-iters": "10",
        "--min-lr": "2.0e-06",
    }
    assert {key: said[key] for key in wanted} == wanted
    assert "--use-distributed-optimizer" in said
    last, first = said["--decoder-last-pipeline-num-layers"], said["--decoder-first-pipeline-num-layers"]
    assert int(last) + int(first) + 14 * 4 == 61


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [("linear", "polynomial"), ("wsd", "warmup_stable_decay"), ("constant", "constant_with_warmup")],
)
def test_schedules_end_where_ours_do(schedule: str, kind: str) -> None:
    made = job(optimizer={"schedule": schedule, "learning_rate": 1e-3})
    values = read(emit(made, "trl")["trl_sft.yaml"])
    assert values["lr_scheduler_type"] == kind
    if schedule == "linear":
        assert values["lr_scheduler_kwargs"]["lr_end"] == pytest.approx(1e-4)
    if schedule == "wsd":
        assert values["lr_scheduler_kwargs"]["num_decay_steps"] == made.optimizer.decay_steps


def test_an_unknown_tool_and_a_method_it_lacks_are_refused() -> None:
    with pytest.raises(GalleyError, match="no tool 'fastai'"):
        emit(job(), "fastai")
    digits = plan(recipe("classify"), NET, statistics(rows=1600, characters=0, example_kind="labelled"))
    with pytest.raises(GalleyError, match="cannot train by the method") as refused:
        emit(digits, "trl")
    assert refused.value.code == "plan-contradiction"
    assert "accelerate" in str(refused.value.hint)


def test_the_verb_writes_the_files_or_shows_them(tmp_path: Path) -> None:
    files = emit(job(), "deepspeed")
    assert verb._kept(files, None).startswith("# --- ds_config.json\n{")
    assert verb._kept(files, tmp_path / "new").splitlines()[0] == f"wrote {tmp_path / 'new' / 'ds_config.json'}"
    assert json.loads((tmp_path / "new/ds_config.json").read_text())["train_batch_size"] == 16


def test_the_verb_overwrites_nothing_and_says_where_it_cannot_write(tmp_path: Path) -> None:
    files = emit(job(), "deepspeed")
    verb._kept(files, tmp_path)
    (tmp_path / "ds_config.json").write_text("mine")
    with pytest.raises(GalleyError, match="exists"):
        verb._kept(files, tmp_path)
    assert (tmp_path / "ds_config.json").read_text() == "mine"
    with pytest.raises(GalleyError, match="cannot be written to"):
        verb._kept(files, tmp_path / "ds_config.json" / "folder")
