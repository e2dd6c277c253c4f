"""Steps per second of Galley's copies beside Stable-Baselines3's vector environments, in the same run, taking turns.

    python benchmarks/environments.py             # one process: CartPole, Pendulum, LunarLander against DummyVecEnv
    python benchmarks/environments.py processes   # several: a slow environment against SubprocVecEnv

Each row is the median of `--rounds` turns; `ratio` is Galley / Stable-Baselines3.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.layout import action_layout
from galley.data.environments.samples import random_actions
from galley.data.environments.single import make_single

SERIAL = {"gym:CartPole-v1": 4000, "gym:Pendulum-v1": 2000, "gym:LunarLander-v3": 600}
SLOW = "gym:HalfCheetah-v5"


@dataclass(frozen=True)
class Case:
    """What is measured.

    Args:
        reference: of the environment.
        vector: of Galley's copies.
        copies: stepped together.
        steps: of each copy in one turn.
        workers: processes of Galley; Stable-Baselines3 has one for each copy.
    """

    reference: str
    vector: Any
    copies: int
    steps: int
    workers: int = 1


def ours(case: Case, actions: list[Any]) -> float:
    """Steps per second of all copies together."""
    settings = EnvironmentSettings(case.reference, case.copies, vector=case.vector, workers=case.workers)
    made = open_environments(settings)
    made.reset(0)
    try:
        return _rate(case, made.step, actions)
    finally:
        made.close()


def theirs(case: Case, actions: list[Any]) -> float:
    """The same with Stable-Baselines3."""
    name = case.reference.removeprefix("gym:")

    def make() -> Any:
        return gymnasium.make(name)

    makers = [make] * case.copies
    made = SubprocVecEnv(makers, start_method="fork") if case.vector == "processes" else DummyVecEnv(makers)
    made.seed(0)
    made.reset()
    try:
        return _rate(case, made.step, actions)
    finally:
        made.close()


def _rate(case: Case, step: Callable[[Any], Any], actions: list[Any]) -> float:
    begun = time.perf_counter()
    for chosen in actions:
        step(chosen)
    return case.copies * case.steps / (time.perf_counter() - begun)


def drawn_actions(case: Case) -> list[Any]:
    """The same for both."""
    made = make_single(EnvironmentSettings(case.reference))
    layout, random = action_layout(made.action_space), np.random.default_rng(0)
    made.close()
    return [random_actions(layout, case.copies, random) for _ in range(case.steps)]


def compare(case: Case, rounds: int) -> None:
    """Print one row."""
    actions = drawn_actions(case)
    pairs = [(ours(case, actions), theirs(case, actions)) for _ in range(rounds)]
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{case.reference:24} {case.vector:10} copies {case.copies} workers {case.workers}: ", end="")
    print(f"galley {mine:10,.0f}/s  sb3 {other:10,.0f}/s  ratio {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=("serial", "processes"), default="serial")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if asked.kind == "processes":
        compare(Case(SLOW, "processes", asked.copies, 500, asked.workers), asked.rounds)
        return
    for reference, steps in SERIAL.items():
        compare(Case(reference, "serial", asked.copies, steps), asked.rounds)
    compare(Case("gym:CartPole-v1", "auto", asked.copies, SERIAL["gym:CartPole-v1"]), asked.rounds)


if __name__ == "__main__":
    main()
