"""The guard stops on numbers that are not finite, notes jumps, and refuses adapters that do not train."""

from __future__ import annotations

import pytest

from galley.base import GalleyError
from galley.engines import StepResult
from galley.guard import WITHHELD_IN_A_ROW, Guard

pytestmark = pytest.mark.unit


def result(loss: float, *, applied: bool = True, untrained: tuple[str, ...] = (), denominator: int = 4) -> StepResult:
    return StepResult(loss, denominator, 1.0, 10, 2, {}, applied=applied, untrained=untrained)


def test_withheld_updates_are_noted_and_then_stop_the_training() -> None:
    guard = Guard()
    for step in range(1, WITHHELD_IN_A_ROW):
        [(kind, _)] = guard.look(step, result(float("nan"), applied=False), adapter=False)
        assert kind == "update-withheld"
    with pytest.raises(GalleyError) as caught:
        guard.look(WITHHELD_IN_A_ROW, result(float("nan"), applied=False), adapter=False)
    assert caught.value.code == "loss-not-finite"


def test_one_good_step_forgives() -> None:
    guard = Guard()
    for step in range(1, 30):
        guard.look(step, result(1.0, applied=step % WITHHELD_IN_A_ROW == 0), adapter=False)
    assert guard.withheld < WITHHELD_IN_A_ROW


def test_a_jump_is_noted_and_noise_is_not() -> None:
    guard = Guard()
    for step in range(1, 21):
        assert guard.look(step, result(1.0 + 0.3 * (step % 3)), adapter=False) == []
    [(kind, message)] = guard.look(21, result(9.0), adapter=False)
    assert kind == "loss-spike"
    assert "step 21" in message


def test_a_step_with_nothing_to_learn_is_no_fault() -> None:
    assert Guard().look(1, result(0.0, applied=False, denominator=0, untrained=("a",)), adapter=True) == []


def test_an_adapter_tensor_without_gradient_stops() -> None:
    with pytest.raises(GalleyError) as caught:
        Guard().look(1, result(1.0, untrained=("lora_A.x",)), adapter=True)
    assert caught.value.code == "adapter-targets"
    assert "lora_A.x" in caught.value.message


def test_a_full_training_only_notes_it() -> None:
    [(kind, _)] = Guard().look(1, result(1.0, untrained=("head",)), adapter=False)
    assert kind == "untrained"
