"""Several seeds together, against SciPy and by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from galley.evaluate.aggregate import aggregate, curves, interquartile_mean, seeds_plot
from galley.runs import RunFolder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("number", [4, 8, 12, 40])
def test_interquartile_mean_is_scipys_where_a_quarter_is_whole(number: int) -> None:
    scores = np.random.default_rng(number).normal(size=number)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_interquartile_mean_counts_scores_at_the_edge_in_part() -> None:
    # Of five, a quarter is 1.25: the first and last are cut, and a quarter of the second and fourth.
    assert interquartile_mean([0.0, 10.0, 20.0, 30.0, 1000.0]) == pytest.approx((7.5 + 20 + 22.5) / 2.5)
    assert interquartile_mean([3.0]) == 3.0
    assert interquartile_mean([2.0, 4.0]) == 3.0


def test_intervals_hold_the_means_and_shrink_with_seeds() -> None:
    random = np.random.default_rng(1)
    few = aggregate([{"tuned": x, "base": 0.0, "higher_is_better": True} for x in random.normal(5, 1, 5)])
    many = aggregate([{"tuned": x, "base": 0.0, "higher_is_better": True} for x in random.normal(5, 1, 80)])
    for result in (few, many):
        assert result.mean_interval[0] <= result.mean <= result.mean_interval[1]
        assert result.iqm_interval[0] <= result.iqm <= result.iqm_interval[1]
    assert np.ptp(many.iqm_interval) < np.ptp(few.iqm_interval)


def _run(root: Path, name: str, points: list[tuple[int, float]]) -> RunFolder:
    folder = RunFolder.create(root, name, recipe="task: control\n", plan={}, manifest={})
    lines = [json.dumps({"step": step, "evaluation_return": value}) for step, value in points]
    folder.metrics_path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def test_curves_are_read_at_common_steps(tmp_path: Path) -> None:
    first = _run(tmp_path, "a", [(0, 0.0), (100, 10.0)])
    second = _run(tmp_path, "b", [(50, 0.0), (150, 20.0)])
    steps, values = curves([first, second], "evaluation_return")
    assert (steps[0], steps[-1]) == (50, 100)
    assert values[:, 0].tolist() == [5.0, 0.0]
    assert values[:, -1].tolist() == [10.0, 10.0]
    assert seeds_plot([first, second], "two", tmp_path / "two.png")
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")
    assert not seeds_plot([_run(tmp_path, "c", [])], "none", tmp_path / "none.png")
