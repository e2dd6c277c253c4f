"""Keys that say nothing for a task are refused: an ignored setting is a wrong result."""

from __future__ import annotations

from typing import Any

import pytest

from galley import methods, recipe
from galley.base import GalleyError
from galley.recipe.write import as_mapping

pytestmark = pytest.mark.unit

CONTROL: dict[str, Any] = {"task": "control", "data": "gym:CartPole-v1"}


def problems(values: dict[str, Any]) -> str:
    with pytest.raises(GalleyError) as caught:
        recipe.load(values, methods=methods)
    assert caught.value.code == "recipe-invalid"
    return caught.value.message


def test_a_control_recipe_needs_two_lines() -> None:
    asked = recipe.load(CONTROL, methods=methods)
    assert asked.task == "control"
    assert asked.model == ""
    assert recipe.load(as_mapping(asked), methods=methods) == asked


@pytest.mark.parametrize("task", ["chat", "complete", "classify"])
def test_other_tasks_need_a_model(task: str) -> None:
    assert "model: is missing" in problems({"task": task, "data": "x.csv"})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("budget.epochs", 3),
        ("budget.tokens", 1000),
        ("data.columns", {"prompt": "a"}),
        ("evaluate.held_out", 0.1),
        ("evaluate.rows", 5),
        ("evaluate.scorer", "exact"),
        ("optimizer.learning_rate", 1e-3),
        ("override.tuning", "lora"),
        ("override.micro_batch", 4),
    ],
)
def test_what_an_agent_does_not_have_is_refused(path: str, value: Any) -> None:
    section, _, key = path.partition(".")
    values = {**CONTROL, section: {key: value}}
    if section == "data":
        values["data"] = {"path": "gym:CartPole-v1", key: value}
    assert f"{path}: does not go with task control" in problems(values)


def test_episodes_are_for_control_alone() -> None:
    values = {"task": "chat", "model": "m", "data": "x.csv", "evaluate": {"episodes": 5}}
    assert "evaluate.episodes: does not go with task chat" in problems(values)


def test_a_method_of_another_task_is_named_with_those_that_fit() -> None:
    told = problems({"task": "chat", "model": "m", "data": "x.csv", "method": "ppo"})
    assert "method ppo does not learn the task chat" in told
    assert "sft" in told
    assert "method sft does not learn the task control" in problems({**CONTROL, "method": "sft"})


@pytest.mark.parametrize(
    ("task", "until"), [("control", {"loss": 1.0}), ("chat", {"return": 3}), ("classify", {"speed": 1.0})]
)
def test_goals_are_measures_of_the_task(task: str, until: dict[str, float]) -> None:
    values = {"task": task, "model": "m", "data": "x.csv", "budget": {"until": until}}
    if task == "control":
        values = {**CONTROL, "budget": {"until": until}}
    assert f"is no measure of task {task}" in problems(values)


def test_goals_are_kept() -> None:
    asked = recipe.load({**CONTROL, "budget": {"steps": 1000, "until": {"return": 475}}}, methods=methods)
    assert asked.budget.until == {"return": 475}
