"""The page that explains a plan."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conftest import Golden
from galley.plan import Plan, explain, parse
from plan.cases import LLAMA_8B, NET, counted, plan, recipe, statistics

pytestmark = pytest.mark.unit

PLANS: dict[str, Callable[[], Plan]] = {
    "chat": lambda: plan(counted=counted(rows_truncated=3, tokens_cut=120), encoded_rows=3600, max_length=2048),
    "pinned": lambda: plan(
        recipe(
            override={"tuning": "dora", "rank": 8, "targets": ["q_proj", "v_proj"], "micro_batch": 2},
            budget={"minutes": 5.0},
        ),
        LLAMA_8B,
        hardware=parse("8x h100-80g"),
    ),
    "digits": lambda: plan(recipe("classify"), NET, statistics(rows=1600, characters=0, example_kind="labelled")),
}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_the_page(golden: Golden, name: str) -> None:
    golden(f"{name}.txt", explain(PLANS[name](), width=100, color=False))


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_no_line_is_too_long(name: str, width: int) -> None:
    page = explain(PLANS[name](), width=width, color=False)
    assert max(len(line) for line in page.splitlines()) <= max(width, 60) + 10
    assert page == page.rstrip() + "\n"


@pytest.mark.parametrize("name", sorted(PLANS))
def test_colours_change_no_word(name: str) -> None:
    plain, coloured = (explain(PLANS[name](), width=90, color=color) for color in (False, True))
    without = re.sub(r"\x1b\[\d+m", "", coloured)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()
    assert "\x1b[1m" in coloured


def test_every_decision_alternative_and_warning_is_on_the_page() -> None:
    for made in (build() for build in PLANS.values()):
        words = " ".join(explain(made, width=100, color=False).split())
        for decision in made.decisions:
            assert decision.key in words
            assert " ".join(decision.because.split()) in words
        for alternative in made.alternatives:
            assert alternative.lost_because in words
        for warning in made.warnings:
            assert warning in words
