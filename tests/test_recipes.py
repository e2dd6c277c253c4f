"""Every recipe of the gallery is read, checked and planned; those marked `# ci: run` are also trained, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

import galley
from galley import job
from galley.data.reading import read

RECIPES = sorted((Path(__file__).parent.parent / "recipes").rglob("*.yaml"))
RUN = [path for path in RECIPES if "# ci: run" in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes find their files wherever one stands."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.unit
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_and_planned(path: Path) -> None:
    control = job.read_recipe(path).task == "control"
    decided = galley.plan(path) if control else galley.plan(path, "data.rows=60")
    assert decided.steps > 0
    assert control or decided.rows > 0  # type: ignore[union-attr]
    assert decided.task == job.read_recipe(path).task


@pytest.mark.unit
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_what_it_is_for(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.unit
def test_the_gallery_has_a_recipe_that_is_run() -> None:
    assert RUN


@pytest.mark.real
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_a_marked_recipe_trains(path: Path, tmp_path: Path) -> None:
    run = galley.train(path, "budget.epochs=3", "data.rows=800", runs_root=tmp_path / "runs")
    losses = [line["held_out_loss"] for line in run.metrics if "held_out_loss" in line]
    assert losses[-1] < losses[0]
    assert run.verdict.better
    assert (run.path / "result" / "README.md").is_file()


@pytest.mark.unit
def test_the_table_of_questions_is_clean() -> None:
    asked = job.read_recipe(Path(__file__).parent.parent / "recipes" / "faq.yaml")
    dataset = read(asked.data, task=asked.task, evaluate=asked.evaluate)
    assert len(dataset.train) + len(dataset.held_out) >= 120
    assert dataset.statistics.duplicates == 0
    assert dataset.statistics.empty == 0
    assert dataset.notes == ()
