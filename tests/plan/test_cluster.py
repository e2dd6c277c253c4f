"""Plans for several devices: laid out by the search, with the batch, budget and pins of the recipe."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from galley.base import GalleyError
from galley.plan import Plan, explain
from galley.plan.emit import emit
from galley.plan.why import why
from plan.cases import LLAMA_8B, SMOLLM, laid_out


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
    assert why(made, "layout").startswith("layout: ")
    for key in ("zero", "micro_batch", "checkpointing", "by phase"):
        assert key in page
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


def test_each_phase_needs_its_part_and_the_fullest_is_the_peak() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "full"})
    phases, parts = made.predicted.memory_phases, made.predicted.memory_parts
    assert {*phases} == {"load", "step", "update", "evaluation", "save"}
    assert max(phases.values()) == phases["step"] == pytest.approx(made.predicted.memory_bytes[1], rel=1e-6)
    assert phases["load"] < phases["update"] < phases["step"]
    kept = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    assert phases["save"] == pytest.approx(kept, rel=0.1)
    json = made.model_dump(mode="json")
    assert json["predicted"]["memory_phases"] == phases


def test_a_price_gives_the_cost_of_the_hours() -> None:
    made = laid_out("8x h100-80g", override={"tuning": "full"}, budget={"price_per_hour": 18.0})
    assert made.predicted.cost is not None
    hours = made.predicted.seconds[1] / 3600
    assert made.predicted.cost[1] == pytest.approx(18.0 * hours)
    assert made.model_dump(mode="json")["predicted"]["cost"][1] == pytest.approx(18.0 * hours)
    assert "at 18 an hour" in " ".join(explain(made, width=100, color=False).split())
    assert laid_out("8x h100-80g", override={"tuning": "full"}).predicted.cost is None


def test_the_clock_cuts_time_cost_and_energy() -> None:
    free = laid_out("8x h100-80g", override={"tuning": "full"}, budget={"epochs": 500, "price_per_hour": 60})
    cut = laid_out(
        "8x h100-80g", override={"tuning": "full"}, budget={"epochs": 500, "price_per_hour": 60, "minutes": 5}
    )
    assert free.predicted.seconds[1] > 300
    assert cut.predicted.seconds[1] == 300
    assert cut.predicted.cost is not None
    assert cut.predicted.cost[1] == pytest.approx(5.0)
    assert cut.cluster is not None
    assert cut.cluster.kilowatt_hours == pytest.approx(8 * cut.hardware.watts * 300 / 3.6e6)


def test_random_weights_are_never_given_adapters() -> None:
    made = laid_out("2x t4-16g", replace(LLAMA_8B, source="random"))
    assert made.cluster is not None
    assert (made.tuning, made.adapter, made.cluster.offload_optimizer) == ("full", None, True)
