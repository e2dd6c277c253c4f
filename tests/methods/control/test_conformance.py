"""What every control method must do, over the whole registry: a new file is tested the moment it exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from galley import checkpoint, methods
from galley.methods.control import registry
from galley.methods.control.base import Agent, WorldFacts
from galley.models.control.spec import NetworkSpec
from methods.control import worlds

NAMES = registry.names()
ACTING = [name for name in NAMES if registry.get(name).experience != "offline"]

pytestmark = pytest.mark.tiny


def rounds(agent: Agent, number: int, done: int = 0) -> int:
    for _ in range(number):
        done += agent.step(done).steps
    return done


def until_it_learns(agent: Agent, done: int = 0) -> int:
    """Rounds until there were some updates."""
    updates = 0
    for _ in range(200):
        outcome = agent.step(done)
        done, updates = done + outcome.steps, updates + outcome.updates
        if updates >= 3:
            return done
    raise AssertionError("it never learns")


def weights(agent: Agent) -> list[torch.Tensor]:
    return [p.detach().clone() for part in agent.parts for p in agent.parameters(part)]


@pytest.mark.parametrize("name", NAMES)
def test_declarations(name: str) -> None:
    kind = registry.get(name)
    assert kind.name == name
    assert kind.paper.startswith("https://")
    assert 0 < len(kind.Config.model_fields) < 20
    assert all(field.description for field in kind.Config.model_fields.values())
    assert kind.action_kinds
    assert methods.config(name) is kind.Config


def test_declarations_do_not_import_torch() -> None:
    code = (
        "import sys; from galley.methods.control import registry\n"
        "for name in registry.names(): kind = registry.get(name); kind(kind.Config())\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_page_explains_every_setting_and_metric(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "methods" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    kind = registry.get(name)
    agent = worlds.make(name)
    done = 0
    metrics: set[str] = set()
    for _ in range(30):
        outcome = agent.step(done)
        done, metrics = done + outcome.steps, metrics | set(outcome.metrics)
    for word in (*kind.Config.model_fields, *metrics):
        assert f"`{word}`" in text, word
    assert kind.paper in text


@pytest.mark.parametrize("name", NAMES)
def test_resume_is_a_continuation_to_the_bit(name: str, tmp_path: Path) -> None:
    agent = worlds.make(name)
    done = until_it_learns(agent)
    checkpoint.save(tmp_path, agent.state())
    rounds(agent, 12, done)
    other = worlds.make(name, seed=9)
    other.load_state(checkpoint.load(tmp_path))
    rounds(other, 12, done)
    assert all(torch.equal(a, b) for a, b in zip(weights(agent), weights(other), strict=True))
    observations = torch.randn(20, agent.decision.spec.observations.size)
    if agent.decision.memory is None:
        assert torch.equal(agent.decision(observations), other.decision(observations))


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_does_not_depend_on_how_a_batch_is_split(name: str) -> None:
    agent = worlds.make(name)
    until_it_learns(agent)
    batch = agent.sample()
    rows = len(next(iter(batch.values())))
    for part in agent.parts:
        whole = agent.loss(part, batch)
        parameters = list(agent.parameters(part))
        expected = torch.autograd.grad(whole.total, parameters, allow_unused=True)
        assert any(g is not None and g.abs().sum() > 0 for g in expected), part
        total, denominator = 0.0, 0
        sums = [torch.zeros_like(p) for p in parameters]
        for start, end in ((0, 3), (3, 4), (4, rows)):
            piece = agent.loss(part, {key: value[start:end] for key, value in batch.items()})
            total, denominator = total + float(piece.total.detach()), denominator + piece.denominator
            for sum_, gradient in zip(
                sums, torch.autograd.grad(piece.total, parameters, allow_unused=True), strict=True
            ):
                if gradient is not None:
                    sum_.add_(gradient)
        assert denominator == whole.denominator
        assert total == pytest.approx(float(whole.total.detach()), rel=1e-5, abs=1e-6)
        for sum_, gradient in zip(sums, expected, strict=True):
            if gradient is not None:
                assert torch.allclose(sum_, gradient, rtol=1e-4, atol=1e-6), part


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_learns_the_same_and_another_seed_differs(name: str) -> None:
    first, again, other = worlds.make(name), worlds.make(name), worlds.make(name, seed=1)
    for agent in (first, again, other):
        until_it_learns(agent)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), weights(other), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_global_random_numbers_are_left_alone(name: str) -> None:
    import random

    import numpy as np

    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    until_it_learns(worlds.make(name))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]
    assert before[2] == random.getstate()


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_known_before_the_start(name: str) -> None:
    kind = registry.get(name)
    worlds_of = worlds.environments(worlds.reference(kind), 1)
    facts = WorldFacts(worlds_of.observations, worlds_of.actions, NetworkSpec((64, 64)), 1000)
    parts = kind(kind.Config()).memory_bytes(facts)
    assert parts["networks"] > 0
    if "buffer_size" in kind.Config.model_fields:
        small = kind(kind.Config.model_validate({"buffer_size": 1000})).memory_bytes(facts)
        large = kind(kind.Config.model_validate({"buffer_size": 1_000_000})).memory_bytes(facts)
        per_row = (large["replay"] - small["replay"]) / 999_000
        assert per_row >= 4 * facts.observations.size, "each row holds at least its observation"


@pytest.mark.parametrize("name", ACTING)
def test_steps_are_counted_without_idle_ones(name: str) -> None:
    agent = worlds.make(name)
    done = until_it_learns(agent)
    outcome = agent.step(done)
    assert outcome.steps > 0
    assert all(episode.length > 0 for episode in outcome.episodes)
