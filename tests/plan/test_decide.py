"""Decisions: sensible for each kind of job, faithful to every pin, and honest about what does not fit."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.base import Exit, GalleyError
from galley.data.order import total_steps
from galley.plan import Hardware, Plan, parse
from galley.recipe.schema import OptimizerName, Precision, ScheduleName, Tuning
from plan.cases import (
    BERT,
    GIB,
    H100,
    LAPTOP,
    LLAMA_8B,
    NET,
    OLD_LAPTOP,
    RANDOM_15M,
    SMOLLM,
    TINY_CHAT,
    counted,
    decision,
    plan,
    recipe,
    statistics,
)

pytestmark = pytest.mark.unit


def test_the_first_voyage() -> None:
    made = plan(counted=counted(), max_length=2048, encoded_rows=3600)
    assert (made.task, made.method, made.tuning, made.precision, made.device) == ("chat", "sft", "lora", "bf16", "cpu")
    assert made.adapter is not None
    assert (made.adapter.rank, made.adapter.alpha, made.adapter.targets) == (16, 32.0, "all-linear")
    assert 5e-4 <= made.optimizer.learning_rate <= 1e-3
    assert (made.epochs, made.steps, made.batch.global_batch_rows) == (3.0, 675, 16)
    assert made.fast_path
    assert made.compile == "none"
    assert made.exact
    assert made.tokens == 3600 * 70
    assert 700 < made.predicted.tokens_per_second[1] < 1600
    assert 0.7 * GIB < made.predicted.memory_bytes[1] < 2 * GIB


def test_a_large_model_on_a_gpu() -> None:
    made = plan(spec=LLAMA_8B, hardware=H100)
    assert (made.tuning, made.precision, made.device) == ("lora", "bf16", "cuda")
    assert made.optimizer.learning_rate == 2e-4
    assert 15 * GIB < made.predicted.memory_parts["weights"] < 17 * GIB
    assert {a.summary for a in made.alternatives} == {"full", "qlora"}


def test_a_small_gpu_takes_qlora_and_says_why() -> None:
    made = plan(spec=LLAMA_8B, hardware=parse("t4-16g"))
    assert made.tuning == "qlora"
    assert made.precision == "fp32"
    assert "needs" in decision(made, "tuning")


def test_tiny_pretrained_models_are_tuned_whole() -> None:
    made = plan(spec=TINY_CHAT)
    assert (made.tuning, made.adapter) == ("full", None)
    assert made.batch.max_length_tokens == 512
    assert not made.fast_path


def test_pretraining_from_random_weights() -> None:
    data = statistics(rows=200, characters=50_000, example_kind="document")
    made = plan(recipe("complete"), RANDOM_15M, data)
    assert (made.method, made.tuning) == ("pretrain", "full")
    assert made.optimizer.learning_rate >= 1e-3
    assert made.optimizer.schedule == "cosine"
    assert made.optimizer.weight_decay == 0.1
    assert 1 <= made.epochs <= 4
    assert made.rows > 200 * 50_000 / 5 / made.batch.max_length_tokens, "long documents count by their pieces"
    encoded = plan(
        recipe("complete"), RANDOM_15M, data, counted=counted(200, 15_000), encoded_rows=6000, max_length=512
    )
    assert encoded.rows == 6000


def test_classifying_text_and_digits() -> None:
    text = plan(recipe("classify"), BERT, statistics(example_kind="labelled"))
    assert (text.method, text.tuning) == ("classify", "full")
    assert 2e-5 <= text.optimizer.learning_rate <= 5e-5
    assert not text.batch.packing
    digits = statistics(rows=1600, held_out=180, characters=0, example_kind="labelled")
    net = plan(recipe("classify"), NET, digits)
    assert (net.tuning, net.precision, net.optimizer.learning_rate) == ("full", "fp32", 1e-3)
    assert net.steps > 500
    assert net.predicted.tokens_per_second == (0, 0, 0)


def test_precision_follows_the_hardware() -> None:
    assert plan(hardware=OLD_LAPTOP).precision == "fp32"
    assert plan(hardware=LAPTOP).precision == "bf16"
    slow = plan(recipe(override={"precision": "bf16"}), hardware=OLD_LAPTOP)
    assert slow.precision == "bf16"
    assert any("slower" in warning for warning in slow.warnings)


@pytest.mark.parametrize(
    ("budget", "epochs", "steps"),
    [
        ({"epochs": 3.0}, 3.0, 15),
        ({"epochs": 0.5}, 0.6, 3),  # a started step is a step
        ({"steps": 7}, 1.4, 7),
        ({"tokens": 2 * 38 * 70}, 2.0, 10),
        ({}, 3.0, 15),
    ],
)
def test_a_budget_is_steps_of_the_loop(budget: dict[str, Any], epochs: float, steps: int) -> None:
    made = plan(recipe(budget=budget), data=statistics(rows=38), counted=counted(38), encoded_rows=38)
    assert made.batch.global_batch_rows == 8
    assert (made.epochs, made.steps) == (epochs, steps)
    assert made.steps == total_steps(38, 8, made.epochs)


def test_minutes_alone_plan_as_much_as_the_fastest_run_could_do() -> None:
    made = plan(recipe(budget={"minutes": 3.0}), counted=counted(), encoded_rows=3600)
    fastest = made.predicted.tokens_per_second[2]
    assert made.steps == pytest.approx(3 * 60 * fastest / 70 / 16, rel=0.02)
    assert made.minutes == 3.0
    assert made.predicted.seconds[2] <= 180
    few = plan(recipe(budget={"minutes": 60.0}), counted=counted(100), encoded_rows=100, data=statistics(rows=100))
    assert few.epochs == 10
    both = plan(recipe(budget={"minutes": 3.0, "epochs": 2.0}), counted=counted(), encoded_rows=3600)
    assert both.epochs == 2.0


def test_few_rows_take_smaller_steps_than_many() -> None:
    sizes = [plan(data=statistics(rows=rows)).batch.global_batch_rows for rows in (5, 500, 5_000, 50_000)]
    assert sizes == [5, 8, 16, 32]


PINS: dict[str, list[Any]] = {
    "tuning": list(get_args(Tuning)),
    "rank": [4, 64],
    "alpha": [8.0],
    "dropout": [0.1],
    "targets": ["all-linear", ["q_proj", "v_proj"]],
    "precision": [p for p in get_args(Precision) if p != "fp16"],
    "device": ["cpu"],
    "global_batch": [1, 24],
    "micro_batch": [1, 4],
    "micro_batch_tokens": [64, 5000],
    "max_length": [16, 700],
    "packing": [True, False],
    "fast_path": [True, False],
    "shared_prefix": [True, False],
    "compile": ["none", "block"],
    "checkpointing": ["none", "full"],
    "threads": [1, 3],
}
OPTIMIZER_PINS: dict[str, list[Any]] = {
    "name": list(get_args(OptimizerName)),
    "learning_rate": [3e-4],
    "weight_decay": [0.0, 0.3],
    "betas": [[0.8, 0.99]],
    "clip": [0.0, 2.0],
    "schedule": list(get_args(ScheduleName)),
    "warmup": [0.0, 0.5, 7.0],
}


def _subset(pins: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in pins.items()})


def _kept(made: Plan, pins: dict[str, Any]) -> dict[str, Any]:
    """What the plan made of each pin."""
    adapter = made.adapter
    places: dict[str, Any] = {
        "tuning": made.tuning,
        "rank": adapter and adapter.rank,
        "alpha": adapter and adapter.alpha,
        "dropout": adapter and adapter.dropout,
        "targets": adapter and (adapter.targets if isinstance(adapter.targets, str) else list(adapter.targets)),
        "precision": made.precision,
        "device": made.device,
        "global_batch": made.batch.global_batch_rows,
        "micro_batch": made.batch.micro_batch_rows,
        "micro_batch_tokens": made.batch.micro_batch_tokens,
        "max_length": made.batch.max_length_tokens,
        "packing": made.batch.packing,
        "fast_path": made.fast_path,
        "shared_prefix": made.batch.shared_prefix,
        "compile": made.compile,
        "checkpointing": made.checkpointing,
        "threads": made.threads,
    }
    return {key: places[key] for key in pins}


@settings(max_examples=150, deadline=None)
@given(_subset(PINS), _subset(OPTIMIZER_PINS))
def test_every_pin_is_kept(pins: dict[str, Any], optimizer: dict[str, Any]) -> None:
    if pins.get("tuning") == "full":
        pins = {k: v for k, v in pins.items() if k not in ("rank", "alpha", "dropout", "targets")}
    made = plan(recipe(override=pins, optimizer=optimizer))
    expected = dict(pins)
    if "micro_batch" in pins:  # a micro-batch is never more than the whole step
        expected["micro_batch"] = min(pins["micro_batch"], made.batch.global_batch_rows)
    if "micro_batch_tokens" in pins:  # nor less than its longest row
        expected["micro_batch_tokens"] = max(pins["micro_batch_tokens"], min(made.batch.max_length_tokens, 232))
    assert _kept(made, pins) == expected
    chosen = made.optimizer.model_dump()
    for key, value in optimizer.items():
        if key == "warmup":
            steps = int(value) if value >= 1 else math.ceil(value * made.steps)
            assert made.optimizer.warmup_steps == min(made.steps, steps)
        else:
            assert chosen[key] == (tuple(value) if key == "betas" else value)
    noted = {d.key for d in made.decisions if d.pinned}
    spoken = {*pins, *optimizer} & {d.key for d in made.decisions}
    assert spoken <= noted | {"name"}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([SMOLLM, LLAMA_8B, TINY_CHAT, RANDOM_15M, BERT, NET]),
    st.integers(1, 200_000),
    st.integers(0, 20_000),
    st.sampled_from(["t4-16g", "a100-40g", "h100-80g", "cpu"]),
)
def test_whatever_is_asked_there_is_a_plan_or_a_reason(spec: Any, rows: int, characters: int, place: str) -> None:
    hardware = LAPTOP if place == "cpu" else parse(place)
    task = {"encoder": "classify", "module": "classify"}.get(spec.kind, "complete" if spec is RANDOM_15M else "chat")
    kind = {"classify": "labelled", "complete": "document"}.get(task, "conversation")
    try:
        made = plan(recipe(task), spec, statistics(rows=rows, characters=characters, example_kind=kind), hardware)
    except GalleyError as error:
        refused = error
    else:
        _is_sound(made, hardware)
        return
    assert (refused.code, refused.exit) == ("plan-does-not-fit", Exit.DOES_NOT_FIT)
    assert "try " in refused.hint


def _is_sound(made: Plan, hardware: Hardware) -> None:
    assert Plan.model_validate_json(made.model_dump_json()) == made
    assert 1 <= made.evaluate_every <= max(1, made.steps)
    assert 0 <= made.optimizer.warmup_steps <= made.steps
    assert 1 <= made.batch.micro_batch_rows <= made.batch.global_batch_rows
    assert sum(made.predicted.memory_parts.values()) <= hardware.memory_bytes
    assert list(made.predicted.memory_bytes) == sorted(made.predicted.memory_bytes)
    assert list(made.predicted.seconds) == sorted(made.predicted.seconds)
    assert all(d.because for d in made.decisions)


def test_a_longer_job_never_needs_a_different_update() -> None:
    """Memory decides only how a step is computed, as long as the job fits."""
    rich, poor = (plan(hardware=LAPTOP.model_copy(update={"memory_bytes": n * GIB})) for n in (20, 2))
    assert poor.batch.micro_batch_tokens <= rich.batch.micro_batch_tokens
    for key in ("tuning", "steps", "optimizer", "adapter"):
        assert getattr(rich, key) == getattr(poor, key)
    assert rich.batch.global_batch_rows == poor.batch.global_batch_rows


@pytest.mark.parametrize(
    ("sections", "spec", "words"),
    [
        ({"override": {"precision": "fp16"}}, SMOLLM, "fp16 on a cpu"),
        ({"override": {"device": "cuda"}}, SMOLLM, "override.device: cuda"),
        ({"override": {"device": "tpu"}}, SMOLLM, "tpu is no device"),
        ({"override": {"max_length": 9000}}, SMOLLM, "8192"),
        ({"override": {"parallel": {"fsdp": 8}}}, SMOLLM, "one device"),
        ({"task": "complete", "override": {"tuning": "lora"}}, RANDOM_15M, "start random"),
        ({"optimizer": {"warmup": 50.0}, "budget": {"steps": 20}}, SMOLLM, "only 20"),
    ],
)
def test_contradictions(sections: dict[str, Any], spec: Any, words: str) -> None:
    with pytest.raises(GalleyError, match=words) as caught:
        plan(recipe(**{"task": "chat", **sections}), spec)
    assert (caught.value.code, caught.value.exit) == ("plan-contradiction", Exit.INVALID_INPUT)
    assert caught.value.hint


def test_a_demand_without_held_out_rows_is_a_contradiction() -> None:
    with pytest.raises(GalleyError, match="held-out rows") as caught:
        plan(recipe(evaluate={"demand": "better"}), data=statistics(held_out=0))
    assert caught.value.code == "plan-contradiction"


@pytest.mark.parametrize(
    ("task", "method", "kind"),
    [("chat", "classify", "conversation"), ("classify", "sft", "labelled"), ("complete", "sft", "document")],
)
def test_a_method_that_does_not_learn_from_such_rows(task: str, method: str, kind: str) -> None:
    with pytest.raises(GalleyError, match=f"method {method} learns .* {kind} rows") as caught:
        plan(recipe(task, method={"name": method}), SMOLLM, statistics(example_kind=kind))
    assert caught.value.code == "plan-contradiction"
    assert "methods for such rows: " in caught.value.hint


@pytest.mark.parametrize("device", ["cpu:99", "cuda:2", "cuda:x"])
def test_a_device_number_that_the_machine_does_not_have(device: str) -> None:
    hardware = LAPTOP if device.startswith("cpu") else parse("2x h100-80g")
    with pytest.raises(GalleyError, match=f"there is no {device}") as caught:
        plan(recipe(override={"device": device}), hardware=hardware)
    assert caught.value.code == "plan-contradiction"
    plan(recipe(override={"device": device.partition(":")[0]}), hardware=hardware)


def test_a_method_that_cannot_train_this_model() -> None:
    with pytest.raises(GalleyError, match="encoder") as caught:
        plan(recipe(), BERT)
    assert caught.value.code == "model-unsupported"


def fits_not(pins: dict[str, Any], memory: int, spec: Any = LLAMA_8B, **sections: Any) -> GalleyError:
    hardware = Hardware(name="x", device="cuda", memory_bytes=memory, features=("bf16",))
    with pytest.raises(GalleyError) as caught:
        plan(recipe(override=pins, **sections), spec, hardware=hardware)
    assert caught.value.code == "plan-does-not-fit"
    assert caught.value.exit == Exit.DOES_NOT_FIT
    return caught.value


def test_what_does_not_fit_names_the_cheapest_change() -> None:
    assert "override.tuning: lora" in fits_not({"tuning": "full"}, 40 * GIB).hint
    assert "override.tuning: qlora" in fits_not({"tuning": "lora"}, 14 * GIB).hint
    hopeless = fits_not({}, 4 * GIB)
    assert "a model of at most" in hopeless.hint
    assert "GiB" in hopeless.message
    budget = fits_not({"tuning": "lora"}, 80 * GIB, budget={"memory": "8GiB"})
    assert "larger budget.memory" in budget.hint


def test_the_change_that_a_hint_names_helps() -> None:
    hardware = Hardware(name="x", device="cuda", memory_bytes=14 * GIB, features=("bf16",))
    assert plan(recipe(override={"tuning": "qlora"}), LLAMA_8B, hardware=hardware).tuning == "qlora"
    long_rows = statistics(rows=100, characters=20_000)
    small = LAPTOP.model_copy(update={"memory_bytes": 3 * GIB})
    pins = {"tuning": "lora", "checkpointing": "none", "max_length": 8000, "fast_path": False}
    with pytest.raises(GalleyError) as caught:
        plan(recipe(override=pins), SMOLLM, long_rows, small)
    length = int(caught.value.hint.split("override.max_length: ")[1].split(";")[0])
    assert plan(recipe(override={**pins, "max_length": length}), SMOLLM, long_rows, small).steps > 0


def test_truncation_is_said_before_training() -> None:
    report = counted(rows_truncated=36, tokens_cut=9000, lengths=(70, 900, 4000))
    (warning,) = plan(counted=report, max_length=512).warnings
    assert "36 of 3,600 rows (1.0%) are cut at 512 tokens" in warning
    assert "longest 4,000" in warning
    assert any("longest row" in w for w in plan(data=statistics(characters=9000)).warnings)


def test_compiling_is_chosen_when_it_pays() -> None:
    phi = SMOLLM.__class__(**{**SMOLLM.__dict__, "family": "phi"})
    assert plan(spec=phi, data=statistics(rows=20_000)).compile == "block"
    assert plan(spec=phi, data=statistics(rows=100)).compile == "none"
    assert plan(data=statistics(rows=20_000)).compile == "none"


def test_plans_are_pure() -> None:
    assert plan() == plan()


def test_planning_is_light_and_fast() -> None:
    code = """
import sys, time
started = time.process_time()
from galley.plan import detect, decide, explain
from plan.cases import plan
from galley.plan import explain
explain(plan(), width=100, color=True)
detect()
print(round(time.process_time() - started, 3))
print([m for m in ("torch", "transformers", "numpy", "psutil", "filelock", "rich") if m in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "tests", "PATH": ""},
    )
    seconds, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert float(seconds) < 0.5, "a quiet machine takes 0.15 s"


def test_the_plan_is_json() -> None:
    assert json.loads(plan().model_dump_json())["adapter"]["rank"] == 16


def test_chinese_is_expected_to_take_more_tokens_a_character() -> None:
    latin, chinese = (plan(data=statistics(wide_share=share)) for share in (0.0, 1.0))
    assert chinese.tokens > 4 * latin.tokens
