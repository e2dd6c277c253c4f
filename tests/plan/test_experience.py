"""Predictions are corrected by what earlier trainings on this machine needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.plan import decide
from galley.plan.experience import Training, correction, measured, recall, remember
from galley.plan.types import Correction, Plan
from plan.cases import LAPTOP, SMOLLM, counted, recipe, statistics

LIKE = Training(
    machine="a laptop, 2 cores",
    device="cpu",
    tuning="lora",
    precision="bf16",
    fast_path=True,
    checkpointing="none",
    family="llama",
    parameters=135,
    tokens_per_second=1.0,
    memory_bytes=1.0,
)


def trained(speed: float, memory: float = 1.0, **facts: object) -> Training:
    return LIKE.model_copy(update={"tokens_per_second": speed, "memory_bytes": memory, **facts})


def planned(*trainings: Training) -> Plan:
    return decide(recipe(), SMOLLM, statistics(), LAPTOP, counted=counted(), trainings=trainings)


def test_without_any_the_range_is_the_usual_one() -> None:
    assert correction((), LIKE) == Correction()
    assert correction([trained(2.0, device="cuda"), trained(2.0, machine="another")], LIKE) == Correction()


def test_the_middle_of_the_newest_counts() -> None:
    old, new = [trained(9.0)] * 30, [trained(0.8), trained(0.7), trained(0.9)] * 3
    found = correction([*old, *new], LIKE)
    assert found.speed[1] == pytest.approx(0.8)
    assert found.trainings == 9


def test_another_model_counts_only_where_there_is_none_of_this() -> None:
    other = trained(3.0, family="qwen2", parameters=500)
    assert correction([other], LIKE).speed[1] == 3.0
    assert correction([other, trained(0.9)], LIKE).speed[1] == 0.9


@given(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=8))
def test_low_is_below_likely_is_below_high(ratios: list[float]) -> None:
    found = correction([trained(ratio, ratio) for ratio in ratios], LIKE)
    for low, likely, high in (found.speed, found.memory):
        assert 0 < low < likely < high


def test_more_trainings_make_the_range_narrower() -> None:
    def width(count: int) -> float:
        low, likely, high = correction([trained(0.8)] * count, LIKE).speed
        return (high - low) / likely

    usual = Correction().speed[2] - Correction().speed[0]
    assert usual > width(1) > width(3) > width(8) >= 0.1


def test_a_plan_learns_from_its_own_training_and_then_stays() -> None:
    """The prediction without correction is what is compared, so that corrections do not pile up."""
    first = planned()
    low, likely, high = first.predicted.tokens_per_second
    assert (low / likely, high / likely) == pytest.approx((0.6, 1.5))
    steps = [
        {"loss": 1.0, "tokens_per_second": 0.5 * likely, "memory_bytes": 0.9 * first.predicted.memory_bytes[1]}
    ] * 9
    known: list[Training] = []
    for _ in range(3):
        plan = planned(*known)
        learned = measured(plan, SMOLLM.family, SMOLLM.num_parameters, steps)
        assert learned is not None
        assert learned.tokens_per_second == pytest.approx(0.5)
        assert learned.memory_bytes == pytest.approx(0.9, rel=1e-4)
        known.append(learned)
    plan = planned(*known)
    assert plan.predicted.tokens_per_second[1] == pytest.approx(0.5 * likely)
    assert plan.predicted.memory_bytes[1] == pytest.approx(0.9 * first.predicted.memory_bytes[1], rel=1e-4)
    assert plan.predicted.correction.trainings == 3


def test_too_short_a_training_teaches_nothing() -> None:
    steps = [{"loss": 1.0, "tokens_per_second": 100.0, "memory_bytes": 1e9}] * 4
    assert measured(planned(), "llama", 135, steps) is None
    assert measured(planned(), "llama", 135, []) is None


def test_lines_are_kept_and_damaged_ones_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "trainings.jsonl"
    assert recall(path) == ()
    for speed in (0.5, 0.6):
        remember(trained(speed), path)
    path.write_text(path.read_text() + '{"machine": 3}\nnot json\n')
    remember(trained(0.7), path)
    assert [training.tokens_per_second for training in recall(path)] == [0.5, 0.6, 0.7]
    for _ in range(600):
        lines = path.read_text().splitlines()
        if len(lines) >= 500:
            break
        path.write_text("\n".join(lines + lines) + "\n")
    remember(trained(0.8), path)
    assert len(path.read_text().splitlines()) == 500


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember(trained(1.0), tmp_path / "file" / "trainings.jsonl")
    assert recall(tmp_path / "file" / "trainings.jsonl") == ()
