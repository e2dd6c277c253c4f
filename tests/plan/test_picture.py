"""A plan as a picture: what is on it, and that it is drawn where it was asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from galley.base import GalleyError
from galley.plan import Plan
from galley.plan.picture import check_picture, picture
from plan.cases import NET, counted, laid_out, plan, recipe, statistics

PLANS: dict[str, Callable[[], Plan]] = {
    "one device": lambda: plan(recipe(budget={"price_per_hour": 2.5}), counted=counted()),
    "several": lambda: laid_out("8x h100-80g", override={"tuning": "full"}, budget={"price_per_hour": 20.0}),
    "module": lambda: plan(recipe("classify"), NET, statistics(rows=1600, characters=0, example_kind="labelled")),
}


def words(path: Path) -> str:
    """What an SVG says: matplotlib writes each text beside its outlines, as a comment."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PLANS)
def test_everything_is_on_it(name: str, tmp_path: Path) -> None:
    made = PLANS[name]()
    picture(made, tmp_path / "plan.svg")
    said = words(tmp_path / "plan.svg")
    assert f"{made.task} by {made.method}: {made.model}" in said
    for decision in made.decisions:
        assert decision.key in said
        assert decision.value in said
    for alternative in made.alternatives:
        assert " ".join(alternative.summary.split()) in " ".join(said.split())
        assert alternative.lost_because in said
    assert ("cost" in said) == (made.predicted.cost is not None)
    assert ("there are" in said) == ("Memory" in said) == (name != "module")


def test_memory_and_time_are_there_part_by_part(tmp_path: Path) -> None:
    made = PLANS["several"]()
    picture(made, tmp_path / "plan.svg")
    said = words(tmp_path / "plan.svg").splitlines()
    assert made.cluster is not None
    for parts in (made.predicted.memory_parts, made.cluster.time_parts):
        whole = sum(parts.values())
        assert {name for name, size in parts.items() if size > 0.01 * whole} <= {*said}
    assert any(line.startswith("evaluation ") for line in said)
    assert any("limit" in line or "there are 77.6 GiB" in line for line in said)


def test_the_same_plan_gives_the_same_picture(tmp_path: Path) -> None:
    made = PLANS["several"]()
    for suffix in ("svg", "png"):
        first, second = (tmp_path / f"{n}.{suffix}" for n in "ab")
        picture(made, first)
        picture(made, second)
        assert first.read_bytes() == second.read_bytes()


def test_png_is_a_png(tmp_path: Path) -> None:
    picture(PLANS["one device"](), tmp_path / "plan.PNG")
    assert (tmp_path / "plan.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "problem"), [("plan.pdf", "no picture"), ("plan", "no picture"), ("no/p.svg", "no folder")]
)
def test_what_cannot_be_drawn_is_refused_before(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match=problem) as caught:
        check_picture(tmp_path / name)
    assert caught.value.code == "usage"
    assert caught.value.hint


def test_matplotlib_is_imported_only_for_a_picture() -> None:
    code = "import sys, galley.plan.picture; assert not {'matplotlib', 'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
