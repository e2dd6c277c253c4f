"""Cost and memory by phase, of plans for one device."""

from __future__ import annotations

from typing import Any

import pytest

from galley.base import GalleyError
from galley.plan import explain
from galley.plan.phases import phases_of
from galley.plan.price import cost_of
from galley.plan.why import why
from galley.recipe import load
from plan.cases import NET, counted, plan, recipe, statistics

pytestmark = pytest.mark.unit


def test_cost_is_hours_times_price() -> None:
    assert cost_of((1800.0, 3600.0, 7200.0), 20.0) == (10.0, 20.0, 40.0)
    assert cost_of((1800.0, 3600.0, 7200.0), None) is None
    assert cost_of((0.0, 0.0, 0.0), 20.0) is None


def test_the_page_json_and_trace_have_the_cost() -> None:
    made = plan(recipe(budget={"price_per_hour": 3.6}), counted=counted())
    cost = made.predicted.cost
    assert cost is not None
    assert cost[1] == pytest.approx(made.predicted.seconds[1] / 1000)
    page = " ".join(explain(made, width=100, color=False).split())
    assert f"cost {cost[1]:,.2f} {cost[0]:,.2f} to {cost[2]:,.2f}, at 3.6 an hour" in page
    assert made.model_dump(mode="json")["price_per_hour"] == 3.6
    assert "3.6 an hour" in why(made, "cost")


def test_without_a_price_nothing_is_said_of_cost() -> None:
    made = plan(counted=counted())
    assert made.predicted.cost is None
    assert "cost " not in explain(made, width=100, color=False).split("What shapes")[0].split("Time and size")[1]
    with pytest.raises(GalleyError, match="nothing called 'cost'"):
        why(made, "cost")


@pytest.mark.parametrize("price", [0, -3, "cheap", float("inf"), True])
def test_prices_that_are_none(price: Any) -> None:
    from galley import methods

    asked = {"task": "chat", "model": "m", "data": "d.csv", "budget": {"price_per_hour": price}}
    with pytest.raises(GalleyError, match=r"budget\.price_per_hour") as caught:
        load(asked, methods=methods)
    assert caught.value.code == "recipe-invalid"


def test_phases_are_sums_of_parts() -> None:
    parts = {"weights": 100, "gradients": 10, "optimizer": 20, "activations": 40, "logits": 5, "runtime": 7}
    assert phases_of(parts) == {"load": 107, "step": 182, "save": 137}
    assert phases_of(parts, 2.0)["step"] == 364
    assert phases_of({**parts, "weights": 0}) == {}


def test_the_step_is_the_peak_and_a_module_has_no_phases() -> None:
    made = plan(counted=counted())
    assert made.predicted.memory_phases["step"] == pytest.approx(made.predicted.memory_bytes[1], rel=1e-6)
    assert "by phase" in explain(made, width=100, color=False)
    module = plan(recipe("classify"), NET, statistics(rows=1600, characters=0, example_kind="labelled"))
    assert module.predicted.memory_phases == {}
