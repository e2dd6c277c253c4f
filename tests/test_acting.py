"""Whole jobs of agents: resume is a continuation, what breaks is said, and the result is what learned."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from galley import job
from galley.base import GalleyError, SilentObserver
from galley.models.control.results import Policy, load_policy
from galley.runs import RunFolder

pytestmark = pytest.mark.tiny

OFF_POLICY = {"batch_size": 16, "buffer_size": 1000, "learning_starts": 50}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("gym:CartPole-v1", {"num_envs": 2, "num_steps": 16, "num_epochs": 2}),
    "a2c": ("gym:Pendulum-v1", {"num_envs": 2, "num_steps": 8}),
    "dqn": ("gym:CartPole-v1", {**OFF_POLICY, "train_frequency": 4, "gradient_steps": 2}),
    "sac": ("gym:Pendulum-v1", OFF_POLICY),
}
WORLD = """
import gymnasium, numpy as np

class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault="", after=150):
        self.fault, self.after, self.steps = fault, after, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        broken = self.steps > self.after
        if broken and self.fault == "raises":
            raise ValueError("the motor is hot")
        reward = float("nan") if broken and self.fault == "nan" else 1.0
        size = 4 if broken and self.fault == "shape" else 3
        return np.zeros(size, np.float32), reward, self.steps % 20 == 0, False, {}
"""


def recipe(method: str, /, **changes: Any) -> dict[str, Any]:
    world, settings = METHODS[method]
    asked: dict[str, Any] = {
        "task": "control",
        "model": "mlp:8x8",
        "data": world,
        "method": {"name": method, **settings},
        "budget": {"steps": 400},
        "evaluate": {"every": 200, "episodes": 2},
        "name": method,
    }
    return {**asked, **changes}


def run(asked: dict[str, Any], root: Path, **options: Any) -> RunFolder:
    return job.train(job.read_recipe(asked), runs_root=root, **options)


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_policy(folder.result).state_dict()


def assert_same(one: RunFolder, other: RunFolder) -> None:
    ours, theirs = weights(one), weights(other)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    seen = [[line.get("evaluation_return") for line in folder.metrics()] for folder in (one, other)]
    assert seen[0] == seen[1]


class Interrupter(SilentObserver):
    """Asks for an interruption, as Ctrl-C does, after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advance(self, count: int = 1, **facts: Any) -> None:
        before, self.left = self.left, self.left - count
        if before > 0 >= self.left:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_holds_all_that_the_design_promises(method: str, tmp_path: Path) -> None:
    folder = run(recipe(method), tmp_path)
    assert folder.status() == "done"
    for name in ("verdict.json", "parity.json", "returns.png", "README.md", "policy.json", "policy.safetensors"):
        assert (folder.result / name).is_file(), name
    assert folder.read_result("parity.json")["reloaded"] == {"max_difference": 0.0, "agreement": 1.0}
    lines = list(folder.metrics())
    assert {"step", "seconds", "return", "steps_per_second"} <= set().union(*lines)
    assert lines[0]["step"] == 0, "it is measured before it learns"
    assert max(line["step"] for line in lines) >= 400


@pytest.mark.parametrize("method", METHODS)
def test_interrupted_and_resumed_equals_undisturbed(method: str, tmp_path: Path) -> None:
    whole = run(recipe(method), tmp_path / "whole")
    with pytest.raises(GalleyError) as caught:
        run(recipe(method), tmp_path / "broken", observer=Interrupter(230))
    assert caught.value.code == "interrupted"
    assert_same(whole, run(recipe(method), tmp_path / "broken"))


@pytest.mark.dist
def test_killed_at_any_moment_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    asked = recipe("dqn", budget={"steps": 4000}, evaluate={"every": 1000, "episodes": 2}, checkpoint={"every": 200})
    whole = run(asked, tmp_path / "whole")
    (tmp_path / "recipe.yaml").write_text(json.dumps(asked), encoding="utf-8")
    words = [sys.executable, "-m", "galley", "train", str(tmp_path / "recipe.yaml"), "--runs", str(tmp_path / "broken")]
    chance = random.Random(3)
    metrics = tmp_path / "broken" / "dqn" / "metrics.jsonl"
    for _ in range(2):
        process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
        before = len(metrics.read_bytes()) if metrics.exists() else 0
        while process.poll() is None and (not metrics.exists() or len(metrics.read_bytes()) <= before):
            time.sleep(0.01)
        time.sleep(chance.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
    folder = RunFolder.open(tmp_path / "broken" / "dqn")
    assert_same(whole, folder if folder.status() == "done" else run(asked, tmp_path / "broken"))


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("raises", "environment-failed", "the motor is hot"),
        ("nan", "environment-invalid", "reward"),
        ("shape", "environment-invalid", "shape"),
    ],
)
def test_a_world_that_breaks_leaves_a_run_that_goes_on(fault: str, code: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD, encoding="utf-8")
    data = {"path": f"{tmp_path / 'world.py'}:World", "options": {"kwargs": {"fault": fault}}}
    asked = recipe("ppo", data=data, checkpoint={"every": 50})
    with pytest.raises(GalleyError) as caught:
        run(asked, tmp_path / "runs")
    assert caught.value.code == code
    assert words in caught.value.message
    folder = RunFolder.open(tmp_path / "runs" / "ppo")
    assert folder.status() == "failed"
    newest = folder.checkpoints.last()
    assert newest is not None
    assert newest.step >= 50


def test_another_world_does_not_continue_a_run(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD, encoding="utf-8")
    asked = recipe("ppo", data=f"{tmp_path / 'world.py'}:World")
    with pytest.raises(GalleyError):
        run(asked, tmp_path / "runs", observer=Interrupter(100))
    (tmp_path / "world.py").write_text(WORLD.replace("20 == 0", "30 == 0"), encoding="utf-8")
    with pytest.raises(GalleyError) as caught:
        run(asked, tmp_path / "runs")
    assert caught.value.code == "checkpoint-mismatch"


def test_a_goal_stops_and_extending_goes_on(tmp_path: Path) -> None:
    folder = run(recipe("ppo", budget={"steps": 4000, "until": {"return": 5}}), tmp_path)
    assert max(line["step"] for line in folder.metrics()) < 400
    assert "goal-reached" in [event["kind"] for event in folder.events()]


def test_a_replay_memory_larger_than_the_machine_is_refused_before_the_start(tmp_path: Path) -> None:
    asked = recipe("sac", method={"name": "sac", "buffer_size": 10**12})
    with pytest.raises(GalleyError) as caught:
        run(asked, tmp_path)
    assert caught.value.code == "plan-does-not-fit"
    assert "replay" in caught.value.message
    assert "buffer_size" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("method", "world"), [("dqn", "gym:Pendulum-v1"), ("sac", "gym:CartPole-v1")])
def test_a_method_for_other_actions_names_those_that_fit(method: str, world: str) -> None:
    with pytest.raises(GalleyError) as caught:
        job.plan(job.read_recipe({"task": "control", "data": world, "method": method}))
    assert caught.value.code == "environment-unsupported"
    assert "ppo" in caught.value.hint


def test_a_demanded_quality_ends_with_its_own_code(tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        run(recipe("ppo", budget={"steps": 32}, evaluate={"episodes": 1, "demand": "better"}, seed=5), tmp_path)
    assert caught.value.code == "below-quality"
    assert (RunFolder.open(tmp_path / "ppo").result / "verdict.json").exists()


def test_the_saved_policy_plays_without_anything_else(tmp_path: Path) -> None:
    folder = run(recipe("ppo"), tmp_path)
    policy = Policy.open(folder.path)
    import gymnasium

    world = gymnasium.make("CartPole-v1")
    observation, _ = world.reset(seed=0)
    for _ in range(5):
        observation, *_ = world.step(policy.act(observation))
    assert np.isfinite(observation).all()
