"""Every decision and prediction can be traced to its rule and its figures."""

from __future__ import annotations

import pytest

from galley.base import GalleyError
from galley.plan.why import why
from plan.cases import LLAMA_8B, SMOLLM, TINY_CHAT, counted, plan, recipe

PLANS = {
    "chat": lambda: plan(counted=counted()),
    "estimated": lambda: plan(spec=TINY_CHAT),
    "pinned": lambda: plan(recipe(override={"tuning": "dora", "micro_batch": 2}, budget={"minutes": 3})),
    "large": lambda: plan(recipe(override={"tuning": "qlora"}), LLAMA_8B),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_decision_has_a_rule_with_figures(name: str) -> None:
    made = PLANS[name]()
    for decision in made.decisions:
        if decision.key == "method":
            continue  # follows from the task
        page = why(made, decision.key)
        assert page.startswith(f"{decision.key}: {decision.value}")
        assert decision.because in page
        assert "rule    " in page, decision.key
        assert "source  galley/plan/" in page
        assert page.split("figures")[1].strip(), decision.key


@pytest.mark.parametrize("key", ["memory", "speed", "training", "disk"])
def test_predictions_are_traced_too(key: str) -> None:
    page = why(plan(counted=counted()), key)
    assert page.startswith(f"{key}: ")
    assert page.count("\n") > 4


def test_memory_shows_the_parts_that_it_is_the_sum_of() -> None:
    page = why(plan(spec=SMOLLM, counted=counted()), "memory")
    for part in ("weights", "gradients", "optimizer", "activations", "logits", "runtime"):
        assert f"  {part}" in page


def test_an_unknown_key_gets_the_nearest() -> None:
    with pytest.raises(GalleyError, match="decides nothing called 'learningrate'") as caught:
        why(plan(), "learningrate")
    assert caught.value.hint == "did you mean learning_rate?"
