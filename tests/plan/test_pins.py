"""Pins of a recipe on plans for several devices: each is kept, and what cannot hold says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from galley.base import GalleyError
from galley.plan import Plan, parse
from galley.plan.candidates import Pins
from galley.plan.families import architecture_of
from galley.plan.pins import pins_of
from galley.plan.published import lookup
from galley.plan.workload import Workload
from galley.recipe import load
from galley.recipe.parallel import AXES
from galley.recipe.schema import OverrideSection
from plan.cases import LLAMA_8B, decision, laid_out

pytestmark = pytest.mark.unit

NODES = "2 nodes x 8x h100-80g"


def pinned(hardware: str = NODES, **pins: Any) -> Plan:
    return laid_out(hardware, override={"tuning": "full", "global_batch": 64, **pins})


@pytest.mark.parametrize(
    "parallel",
    [
        {"tensor": 4},
        {"tensor": 16},
        {"pipeline": 4},
        {"context": 2},
        {"data": 16},
        {"pipeline": 2, "virtual": 4},
        {"virtual": 2},
        {"zero": 0},
        {"zero": 1},
        {"zero": 2, "pipeline": 1},
        {"zero": 3, "shards": 8},
        {"shards": 4},
        {"tensor": 2, "pipeline": 2, "context": 1, "data": 4, "virtual": 1, "zero": 1},
    ],
    ids=str,
)
def test_each_axis_is_kept(parallel: dict[str, int]) -> None:
    made = pinned(parallel=parallel)
    cluster = made.cluster
    assert cluster is not None
    for axis, size in parallel.items():
        assert getattr(cluster, axis) == size, axis
    assert cluster.tensor * cluster.pipeline * cluster.context * cluster.data == 16
    assert cluster.data * cluster.accumulation * cluster.micro_batch_rows == 64
    keys = {d.key for d in made.decisions if d.pinned}
    assert keys & ({"zero"} if {*parallel} <= {"zero", "shards"} else {"layout"})


def test_fsdp_is_zero_3_over_so_many_devices() -> None:
    made = pinned(parallel={"fsdp": 8})
    assert made.cluster is not None
    assert (made.cluster.zero, made.cluster.shards) == (3, 8)
    assert "recipe" in decision(made, "zero")


def test_experts_are_kept() -> None:
    mixtral = lookup("mixtral-8x7b")
    assert mixtral is not None
    work = Workload(sequence=2048, global_batch=64)
    pins = pins_of(OverrideSection(parallel={"expert": 4}), mixtral, parse(NODES), work)
    assert pins.expert == 4


@pytest.mark.parametrize("tuning", ["full", "lora", "dora", "qlora"])
def test_tuning_is_kept(tuning: str) -> None:
    made = laid_out("8x h100-80g", override={"tuning": tuning})
    assert made.tuning == tuning
    assert (made.adapter is None) == (tuning == "full")


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp16"])
def test_precision_is_kept(precision: str) -> None:
    made = laid_out("8x h100-80g", override={"precision": precision, "tuning": "lora"})
    assert made.precision == precision


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_checkpointing_is_kept(checkpointing: str) -> None:
    made = pinned(checkpointing=checkpointing)
    assert made.cluster is not None
    assert made.checkpointing == made.cluster.recompute == checkpointing


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_micro_batch_is_kept(rows: int) -> None:
    made = pinned(micro_batch=rows)
    assert made.cluster is not None
    assert made.cluster.micro_batch_rows == rows


def test_micro_batch_tokens_are_a_limit() -> None:
    free, limited = pinned(), pinned(micro_batch_tokens=512)
    assert free.cluster is not None
    assert limited.cluster is not None
    assert limited.cluster.micro_batch_rows * limited.cluster.sequence_tokens <= 512
    assert free.cluster.micro_batch_rows > limited.cluster.micro_batch_rows


@pytest.mark.parametrize(
    ("override", "words", "hint"),
    [
        ({"parallel": {"tensor": 3}}, "does not divide 16 devices", "1, 2, 4, 8 or 16"),
        ({"parallel": {"tensor": 4, "pipeline": 8}}, "tensor 4 x pipeline 8 is 32", "divide|use"),
        ({"parallel": {"tensor": 2, "pipeline": 2, "context": 1, "data": 2}}, "8 of 16 devices", "would be 4"),
        ({"parallel": {"fsdp": 3}}, "fsdp 3, but 16 devices", "2, 4"),
        ({"parallel": {"tensor": 4, "shards": 8}}, "shards 8, but 4 devices", "1, 2 or 4"),
        ({"parallel": {"expert": 2}}, "no experts", "leave it out"),
        ({"parallel": {"data": 16}, "global_batch": 24}, "a global batch of 24", "1, 2, 3, 4, 6, 8, 12 or 24"),
        ({"micro_batch": 5}, "micro_batch: 5 does not divide", "1, 2, 4"),
        ({"parallel": {"data": 8}, "micro_batch": 16}, "the 8 rows of each copy", "4 or 8"),
    ],
    ids=str,
)
def test_contradictions_say_what_does_not_go_together(override: dict[str, Any], words: str, hint: str) -> None:
    with pytest.raises(GalleyError, match=words) as caught:
        pinned(**override)
    assert caught.value.code == "plan-contradiction"
    assert any(part in (caught.value.hint or "") for part in hint.split("|"))


@pytest.mark.parametrize(
    ("changes", "parallel", "words"),
    [
        ({"num_heads": 12, "num_kv_heads": 4, "hidden_size": 1536}, {"tensor": 8}, "12 heads"),
        ({"num_heads": 24, "num_kv_heads": 6, "hidden_size": 3072}, {"tensor": 4}, "6 key and value heads"),
        ({"intermediate_size": 14_338}, {"tensor": 4}, "feed-forward net of 14,338"),
        ({"num_layers": 6}, {"pipeline": 8}, "6 layers"),
        ({"num_layers": 6}, {"pipeline": 4, "virtual": 2}, "pipeline 4 x virtual 2"),
    ],
    ids=str,
)
def test_what_the_model_does_not_divide_into(changes: dict[str, Any], parallel: dict[str, int], words: str) -> None:
    with pytest.raises(GalleyError, match=words):
        laid_out(NODES, replace(LLAMA_8B, **changes), override={"tuning": "full", "parallel": parallel})


def test_a_pin_that_only_the_search_can_refuse_is_named() -> None:
    with pytest.raises(GalleyError, match="no layout over 16 devices") as caught:
        pinned(parallel={"pipeline": 8, "virtual": 4}, global_batch=4)
    assert caught.value.code == "plan-contradiction"
    assert "no pin on " in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        ({"tensr": 2}, "did you mean tensor"),
        ({"Tensor": 2}, "did you mean tensor"),
        ({"tp": 2}, "expected tensor, pipeline"),
        ({"zero": 4}, "0 to 3"),
        ({"fsdp": 0}, "at least 1"),
        ({"fsdp": 8, "zero": 1}, "fsdp: 8"),
        ({"fsdp": 8, "shards": 4}, "8 devices"),
        ({"zero": 0, "shards": 4}, "zero: 0"),
        ({"pipeline": 1, "virtual": 2}, "pipeline: 1"),
    ],
    ids=str,
)
def test_mistakes_are_found_in_the_recipe_itself(parallel: dict[str, int], words: str) -> None:
    from galley import methods

    asked = {"task": "chat", "model": "m", "data": "d.csv", "override": {"parallel": parallel}}
    with pytest.raises(GalleyError, match=words) as caught:
        load(asked, methods=methods)
    assert caught.value.code == "recipe-invalid"
    assert "override.parallel." in str(caught.value)


def test_axes_are_those_of_a_layout() -> None:
    of_pins = {*AXES} - {"fsdp"}
    assert of_pins <= {*vars(Pins())}
    architecture = architecture_of(LLAMA_8B)
    work = Workload(sequence=2048, global_batch=64)
    for axis in of_pins:
        pins = pins_of(OverrideSection(parallel={axis: 1}), architecture, parse(NODES), work)
        assert getattr(pins, axis) == 1
