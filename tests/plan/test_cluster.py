"""Plans for several devices: laid out by the search, with the batch, budget and pins of the recipe."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from galley.base import GalleyError
from galley.plan import Plan, decide, explain, parse
from galley.plan.cluster import over_devices, without_limit
from galley.plan.emit import emit
from galley.plan.why import why
from plan.cases import LLAMA_8B, SMOLLM, counted, recipe, statistics


def laid_out(hardware: str, spec: Any = LLAMA_8B, **sections: Any) -> Plan:
    asked, place = recipe(**sections), parse(hardware)
    made = decide(asked, spec, statistics(), without_limit(place), counted=counted())
    return over_devices(made, asked, spec, place)


def test_all_devices_are_used_and_the_batch_is_kept() -> None:
    made = laid_out("2 nodes x 8x h100-80g", override={"tuning": "full", "global_batch": 64})
    cluster = made.cluster
    assert cluster is not None
    assert cluster.tensor * cluster.pipeline * cluster.context * cluster.data == 16
    assert cluster.micro_batch_rows * cluster.accumulation * cluster.data == 64 == made.batch.global_batch_rows
    assert made.tuning == "full"
    assert cluster.zero >= 1, "16 bytes a weight of 8B are more than one device has"


def test_memory_and_time_are_those_of_the_layout() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "full"})
    low, likely, high = made.predicted.memory_bytes
    assert 8.03e9 * 16 / 8 < likely < made.hardware.memory_bytes
    assert low < likely < high
    assert sum(made.predicted.memory_parts.values()) == pytest.approx(likely, rel=0.1)
    assert made.cluster is not None
    assert made.predicted.seconds[1] == pytest.approx(made.steps * made.cluster.step_seconds[1])
    assert sum(made.cluster.time_parts.values()) == pytest.approx(made.cluster.step_seconds[1])


def test_the_page_shows_layout_parts_of_a_step_and_what_lost() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "full"})
    page = explain(made, width=100, color=False)
    for words in ("layout", "Time of a step", "products", "energy", "What lost", "trains on one device"):
        assert words in page
    assert made.alternatives
    assert all(alternative.lost_because in " ".join(page.split()) for alternative in made.alternatives)
    assert why(made, "layout").startswith("layout: full, bf16")
    assert Plan.model_validate(made.model_dump(mode="json")) == made


def test_what_is_written_for_other_tools_has_the_layout() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "full", "global_batch": 32})
    assert made.cluster is not None
    config = json.loads(emit(made, "deepspeed")["ds_config.json"])
    assert config["train_batch_size"] == 32
    assert config["train_micro_batch_size_per_gpu"] == made.cluster.micro_batch_rows
    assert config["zero_optimization"]["stage"] == made.cluster.zero


def test_a_family_that_nobody_checked_is_warned_of() -> None:
    unknown = replace(LLAMA_8B, family="jamba")
    made = laid_out("8x h100-80g", unknown)
    assert any("jamba" in warning for warning in made.warnings)
    assert not any("taken for" in warning for warning in laid_out("8x h100-80g").warnings)


def test_pins_are_kept() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "lora", "checkpointing": "full", "micro_batch": 1})
    assert made.cluster is not None
    assert (made.tuning, made.cluster.recompute, made.cluster.micro_batch_rows) == ("lora", "full", 1)


def test_more_devices_than_rows_are_refused_with_what_would_do() -> None:
    with pytest.raises(GalleyError, match="no layout over 4,096 devices") as caught:
        laid_out("4096x h100-80g", SMOLLM)
    assert "global batch" in (caught.value.hint or "")


def test_what_fits_nowhere_says_what_would() -> None:
    with pytest.raises(GalleyError) as caught:
        laid_out("2x t4, 16gb", override={"tuning": "full"})
    assert caught.value.code == "plan-does-not-fit"
    assert caught.value.hint
