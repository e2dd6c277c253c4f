"""What a world does wrong is said as what it is, not as a fault of the training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.rows import row_not_finite
from galley.data.worlds import open_world
from galley.methods.control import playing

WORLD = """
import gymnasium, numpy as np
from gymnasium import spaces
from neighbour import START

class World(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    def __init__(self, gives=""):
        self.gives = gives
    def reset(self, *, seed=None, options=None):
        return np.array([START, 0], np.float32), {}
    def step(self, action):
        seen, reward, over, info = np.ones(2, np.float32), 1.0, False, {}
        if self.gives == "nan": seen = seen * np.nan
        if self.gives == "inf": seen = seen + np.inf
        if self.gives == "none": reward = None
        if self.gives == "four": return seen, reward, False, {}
        if self.gives == "exit": raise SystemExit(3)
        if self.gives == "info": over, info = True, None
        return seen, reward, over, False, info

class Nothing(World):
    observation_space = spaces.Box(-1, 1, (0,), np.float32)
class NoAction(World):
    action_space = spaces.Box(-1, 1, (0,), np.float32)
class NoSpace(gymnasium.Env):
    pass
"""


@pytest.fixture
def world(tmp_path: Path) -> str:
    name = f"neighbour_{tmp_path.name}"  # modules are remembered by their names
    (tmp_path / f"{name}.py").write_text("START = 7.0\n")
    (tmp_path / "world.py").write_text(WORLD.replace("neighbour", name))
    return f"{tmp_path / 'world.py'}"


@pytest.mark.parametrize(
    ("gives", "code", "words"),
    [
        ("nan", "environment-invalid", "environment 0, step 1 of episode 0: the observation holds nan"),
        ("inf", "environment-invalid", "the observation holds inf"),
        ("none", "environment-invalid", "what step gave cannot be read: float() argument"),
        ("four", "environment-invalid", "expected 5, got 4"),
        ("info", "environment-invalid", "info is None"),
        ("exit", "environment-failed", "SystemExit: 3"),
    ],
)
def test_what_step_gives_is_named(world: str, gives: str, code: str, words: str) -> None:
    opened = open_environments(EnvironmentSettings(f"{world}:World", 2, {"gives": gives}))
    assert opened.reset(0).tolist() == [[7.0, 0.0]] * 2  # its neighbour is found
    with pytest.raises(GalleyError) as caught:
        opened.step(np.zeros(2, np.int64))
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Nothing", "environment-unsupported"),
        ("NoAction", "environment-unsupported"),
        ("NoSpace", "environment-invalid"),
    ],
)
def test_spaces_without_parts_are_refused(world: str, name: str, code: str) -> None:
    with pytest.raises(GalleyError) as caught:
        open_world(f"{world}:{name}", {})
    assert caught.value.code == code


def test_what_a_file_imports_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text("import a_package_that_is_not_there\n")
    with pytest.raises(GalleyError) as caught:
        open_world(f"{tmp_path / 'world.py'}:make", {})
    assert caught.value.code == "package-missing"
    assert "a_package_that_is_not_there" in caught.value.message


def test_an_episode_that_never_ends_is_not_waited_for(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LONGEST", 50)
    opened = open_environments(EnvironmentSettings(f"{world}:World", 2))
    player = playing.RandomPlayer(opened.actions, 0)
    with pytest.raises(GalleyError, match="an episode did not end within 50 steps"):
        playing.play(opened, player, 2, seed=0)


def test_large_numbers_are_finite() -> None:
    assert row_not_finite(np.full((3, 4), 3e38, np.float32)) is None
    assert row_not_finite(np.array([[1, 2], [np.nan, 1]], np.float32)) == 1
    assert row_not_finite(np.array([[1, -np.inf], [0, 1]], np.float32)) == 0


def test_an_option_that_nothing_would_read_is_refused() -> None:
    with pytest.raises(GalleyError, match=r"data.options.environment is for stored episodes"):
        open_world("gym:CartPole-v1", {"environment": "gym:CartPole-v1"})
