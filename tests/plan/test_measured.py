"""What `galley calibrate` measured is read by later plans: speeds follow it, ranges shrink, and the plan says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from galley import lifecycle
from galley.base import GalleyError
from galley.plan import calibration, decide, parse, resolve
from galley.plan.calibration import Calibration, Product
from galley.plan.checks import refuse_untrainable
from galley.plan.experience import measured
from galley.plan.types import Plan
from galley.plan.why import why
from plan.cases import SMOLLM, counted, plan, recipe, statistics

pytestmark = pytest.mark.unit

HALF, PEAK = {"bf16": 100.0, "fp32": 50.0}, {"bf16": 2.0, "fp32": 0.4}


def made(factor: float = 1.0, **facts: object) -> Calibration:
    """Of this machine: products whose speed is rows / (rows + half) of a peak, whatever their other sides."""
    products = tuple(
        Product(
            precision=precision,
            tokens=tokens,
            inner=side,
            outer=side,
            tflops=factor * peak * tokens / (tokens + HALF[precision]),
        )
        for precision, peak in PEAK.items()
        for tokens in (64, 256, 1024)
        for side in (576, 2048)
    )
    given = {
        "fingerprint": calibration.fingerprint(),
        "device": "cpu",
        "measured_at": "2026-01-31T10:00:00+00:00",
        "seconds": 7.0,
        "quick": False,
        "products": products,
        "memory_gbps": 20.0 * factor,
        "reduction": None,
        "disk": None,
    }
    return Calibration.model_validate(given | facts)


def here(precision: str = "bf16") -> Plan:
    """A plan for this machine's processor."""
    asked = recipe(override={"precision": precision, "max_length": 512})
    return decide(asked, SMOLLM, statistics(), resolve("cpu"), counted=counted())


def test_the_summary_gives_back_what_was_measured() -> None:
    found = made().summary()
    assert found.on == "2026-01-31"
    for precision, peak in PEAK.items():
        assert found.tflops[precision] == pytest.approx(peak, rel=0.001)
        assert found.half_speed_rows[precision] == pytest.approx(HALF[precision], rel=0.01)
        assert found.flops(precision, HALF[precision]) == pytest.approx(peak * 1e12 / 2, rel=0.01)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_plans_follow_the_measured_speed_and_their_range_shrinks(cache_folder: Path, precision: str) -> None:
    guessed = here(precision)
    assert guessed.hardware.measured is None
    calibration.save(made())
    first = here(precision)
    calibration.save(made(factor=3.0))
    faster = here(precision)
    assert faster.predicted.tokens_per_second[1] == pytest.approx(3 * first.predicted.tokens_per_second[1], rel=0.01)
    wide, narrow = (p.predicted.tokens_per_second[2] / p.predicted.tokens_per_second[0] for p in (guessed, first))
    assert narrow < 0.75 * wide
    assert first.predicted.memory_bytes == guessed.predicted.memory_bytes


def test_the_plan_says_where_its_speed_comes_from(cache_folder: Path) -> None:
    assert "galley calibrate` replaces" in why(here(), "speed")
    calibration.save(made())
    page = why(here(), "speed")
    assert "by galley calibrate, 2026-01-31" in page
    assert "2 TFLOP/s in bf16, half of it at 100 tokens" in page
    assert "20 GB/s" in page


def test_only_this_machine_is_as_it_was_measured(cache_folder: Path) -> None:
    calibration.save(made())
    assert parse("h100-80g").measured is None
    assert parse("laptop").measured is None
    calibration.save(made(device="cuda"))
    assert resolve("cpu").measured is None, "another device of this machine was measured"


def test_trainings_before_a_calibration_say_nothing_about_plans_after_it(cache_folder: Path) -> None:
    lines = [{"loss": 1.0, "tokens_per_second": 500.0, "memory_bytes": 2**30}] * 9
    before = here()
    learned = measured(before, "llama", SMOLLM.num_parameters, lines)
    assert learned is not None
    calibration.save(made())
    asked = recipe(override={"precision": "bf16", "max_length": 512})
    after = decide(asked, SMOLLM, statistics(), resolve("cpu"), counted=counted(), trainings=[learned])
    assert after.predicted.correction.trainings == 0


@pytest.mark.parametrize(("name", "device"), [("gaudi3", "hpu"), ("ascend910b", "npu"), ("tpu-v5e", "xla")])
def test_other_accelerators_are_planned_for_and_not_trained_on(name: str, device: str) -> None:
    made_plan = plan(hardware=parse(name), counted=counted())
    assert made_plan.device == device
    assert made_plan.predicted.tokens_per_second[1] > 10_000
    assert plan(recipe(override={"device": f"{device}:0"}), hardware=parse(name)).device == f"{device}:0"
    with pytest.raises(GalleyError, match=f"does not train on {device}") as caught:
        refuse_untrainable(made_plan.device)
    assert caught.value.code == "plan-contradiction"
    refuse_untrainable("cuda:1")


def test_no_run_is_made_for_a_device_that_nothing_trains_on(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match="does not train on xla"):
        lifecycle.create(recipe(), {"device": "xla:0"}, {}, tmp_path, "never")
    assert list(tmp_path.iterdir()) == []
