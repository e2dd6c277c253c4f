"""Opening environments and comparing what they give, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from galley.data.environments import Environments, EnvironmentSettings, Step, open_environments
from galley.data.environments.samples import random_actions

FAULTY = "data.environments.faulty:Faulty"


def opened(reference: str, num_envs: int = 3, **settings: Any) -> Environments:
    return open_environments(EnvironmentSettings(reference, num_envs, **settings))


def play(environments: Environments, steps: int, seed: int = 0) -> list[Step]:
    random = np.random.default_rng(seed)
    rows = environments.num_envs
    return [environments.step(random_actions(environments.actions, rows, random)) for _ in range(steps)]


def assert_same(one: list[Step], other: list[Step]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine[:6], theirs[:6], strict=True):
            np.testing.assert_array_equal(a, b)
        assert list(mine.episodes) == list(theirs.episodes)
