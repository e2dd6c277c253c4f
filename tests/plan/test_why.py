"""Every decision and prediction can be traced to its rule and its figures."""

from __future__ import annotations

import pytest

from galley.base import GalleyError
from galley.plan.why import predictions_of, why
from plan.cases import LLAMA_8B, SMOLLM, TINY_CHAT, counted, laid_out, plan, recipe

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


CLUSTERS = {
    "full": lambda: laid_out("8x h100-80g", override={"tuning": "full"}, budget={"price_per_hour": 20}),
    "several nodes": lambda: laid_out("2 nodes x 8x a100-80g", override={"tuning": "full", "global_batch": 64}),
    "adapter": lambda: laid_out("4x l4-24g", override={"tuning": "qlora", "parallel": {"fsdp": 4}}),
    "offload": lambda: laid_out("2x a100-40g", override={"tuning": "full"}, optimizer={"name": "adamw"}),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_key_of_a_plan_for_several_devices_has_a_rule_with_figures(name: str) -> None:
    made = CLUSTERS[name]()
    keys = [*(decision.key for decision in made.decisions), *predictions_of(made)]
    assert {"layout", "zero", "micro_batch", "checkpointing", "memory", "step", "mfu", "speed", "energy"} <= {*keys}
    assert ("cost" in keys) == (name == "full")
    assert ("offload" in keys) == (name == "offload")
    for key in keys:
        page = why(made, key)
        assert page.startswith(f"{key}: "), key
        assert "rule    " in page, key
        assert "source  galley/plan/" in page, key
        assert any(character.isdigit() for character in page.split("figures")[1]) or key == "method", key


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_part_of_memory_and_time_has_its_formula(name: str) -> None:
    made = CLUSTERS[name]()
    assert made.cluster is not None
    for key, parts in (("memory", made.predicted.memory_parts), ("step", made.cluster.time_parts)):
        lines = why(made, key).split("figures")[1].splitlines()
        for part, size in parts.items():
            line = next((line for line in lines if line.split()[:1] == [part] and " = " in line), "")
            assert line or size < 1e-9, (key, part)


def test_the_figures_of_mfu_give_it() -> None:
    made = CLUSTERS["full"]()
    cluster = made.cluster
    assert cluster is not None
    assert cluster.step_flops / (cluster.step_seconds[1] * cluster.peak_flops) == pytest.approx(cluster.mfu)
    assert f"{cluster.step_flops:.3g} FLOPs" in why(made, "mfu")


def test_memory_shows_the_parts_that_it_is_the_sum_of() -> None:
    page = why(plan(spec=SMOLLM, counted=counted()), "memory")
    for part in ("weights", "gradients", "optimizer", "activations", "logits", "runtime"):
        assert f"  {part}" in page


def test_an_unknown_key_gets_the_nearest() -> None:
    with pytest.raises(GalleyError, match="decides nothing called 'learningrate'") as caught:
        why(plan(), "learningrate")
    assert caught.value.hint == "did you mean learning_rate?"
