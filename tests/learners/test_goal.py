"""A training ends when an evaluation reaches what `budget.until` asks for, and is resumed past it correctly."""

from __future__ import annotations

from pathlib import Path

import pytest

import jobs
from galley.plan import Plan

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path / "cache"))


def test_a_goal_ends_the_training(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path, budget={"steps": 40, "until": {"loss": 100.0}}, evaluate={"every": 3})
    folder = jobs.run(asked, tmp_path / "runs")
    last = max(line["step"] for line in folder.metrics() if "loss" in line)
    assert last == 3, "the first evaluation is already below 100"
    assert [event["kind"] for event in folder.events() if event["kind"] == "goal-reached"] == ["goal-reached"]
    assert folder.status() == "done"


def test_a_goal_out_of_reach_ends_nothing(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path, budget={"steps": 6, "until": {"accuracy": 1.1}}, evaluate={"every": 2})
    folder = jobs.run(asked, tmp_path / "runs")
    assert max(line["step"] for line in folder.metrics() if "loss" in line) == 6
    assert Plan.model_validate(folder.plan()).until == {"accuracy": 1.1}
