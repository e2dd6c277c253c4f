"""Stored episodes beside the environment that they were played in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.layout import action_layout, observation_layout
from galley.data.episodes import from_environment, write_episodes
from galley.data.episodes.spaces import Layouts, guessed_layouts, inside
from galley.data.worlds import OpenWorld, open_world
from galley.methods.control.playing import RandomPlayer

pytestmark = pytest.mark.unit


def foreign(folder: Path, actions: Any, observations: Any = None) -> Path:
    """A file of somebody else, which does not say what its numbers mean."""
    rows = len(actions)
    seen = np.zeros((rows, 3), np.float32) if observations is None else np.asarray(observations)
    ends = np.arange(rows) == rows - 1
    path = folder / "foreign.npz"
    np.savez(path, observations=seen, actions=np.asarray(actions), rewards=np.ones(rows), terminated=ends)
    return path


def opened(path: Path, environment: str, **options: Any) -> OpenWorld:
    return open_world(str(path), {"environment": environment, **options})


def test_the_environment_says_what_a_foreign_file_cannot(tmp_path: Path) -> None:
    world = opened(foreign(tmp_path, np.array([[-1.5], [0.5]], np.float32)), "gym:Pendulum-v1")
    assert (world.actions.low, world.actions.high) == ((-2.0,), (2.0,))
    assert world.episodes is not None
    assert world.episodes.actions_layout == world.actions
    assert world.episodes.actions.tolist() == [[-1.5], [0.5]]
    choices = opened(foreign(tmp_path, [0, 1, 1], [3, 4, 8]), "gym:FrozenLake-v1")
    assert choices.actions.sizes == (4,)
    assert choices.observations.leaves[0].sizes == (16,)


@pytest.mark.parametrize(
    ("actions", "observations", "environment"),
    [
        (np.array([[-2.5], [0.5]], np.float32), None, "gym:Pendulum-v1"),  # outside the bounds
        (np.zeros((2, 2), np.float32), None, "gym:Pendulum-v1"),  # two numbers instead of one
        (np.zeros((2, 1), np.float32), np.zeros((2, 4), np.float32), "gym:Pendulum-v1"),  # sees more
        (np.zeros((2, 1), np.float32), np.zeros((2, 4), np.float32), "gym:CartPole-v1"),  # numbers for choices
        ([0, 4], [1, 2], "gym:FrozenLake-v1"),  # a fifth choice of four
        ([0, 1], [1, 16], "gym:FrozenLake-v1"),  # a seventeenth place of sixteen
    ],
)
def test_files_of_another_world_are_refused(actions: Any, observations: Any, environment: str, tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        opened(foreign(tmp_path, actions, observations), environment)
    assert caught.value.code == "environment-invalid"
    assert environment in caught.value.message


def test_what_is_said_must_agree(tmp_path: Path) -> None:
    path = foreign(tmp_path, np.array([[-1.5], [0.5]], np.float32))
    assert opened(path, "gym:Pendulum-v1", action_low=-2, action_high=2).actions.high == (2.0,)
    with pytest.raises(GalleyError, match="other spaces"):
        opened(path, "gym:Pendulum-v1", action_low=-1.5, action_high=1.5)
    played = open_environments(EnvironmentSettings("gym:Pendulum-v1", 1, wrappers={"rescale-action": {}}))
    own = tmp_path / "own.npz"
    write_episodes(own, from_environment(played, RandomPlayer(played.actions, 0), 1, seed=0))
    played.close()
    with pytest.raises(GalleyError, match="other spaces"):
        opened(own, "gym:Pendulum-v1")  # the file says that actions run from -1 to 1
    assert opened(own, "gym:Pendulum-v1", wrappers={"rescale-action": {}}).actions.high == (1.0,)


@pytest.mark.parametrize(("start", "fits"), [(0, True), (1, False)])
def test_choices_that_do_not_count_from_zero_cannot_be_guessed(start: int, fits: bool) -> None:
    seen = np.zeros((2, 3), np.float32)
    guess = guessed_layouts(seen, np.array([1, 2]), {})
    world = Layouts(observation_layout(spaces.Box(-9, 9, (3,))), action_layout(spaces.Discrete(3, start=start)))
    assert inside(guess, world) == fits
