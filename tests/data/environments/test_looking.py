"""Checking, describing and recording an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence

from data.environments.faulty import Faulty
from data.environments.playing import FAULTY
from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings
from galley.data.environments.check import check_environment
from galley.data.environments.describe import describe
from galley.data.environments.recording import record, write_recording

pytestmark = pytest.mark.unit


def faulty(**kwargs: Any) -> EnvironmentSettings:
    return EnvironmentSettings(FAULTY, kwargs=kwargs)


class Outside(Faulty):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("reference", ["gym:CartPole-v1", "gym:MiniGrid-Empty-5x5-v0", "gym:Pendulum-v1", FAULTY])
def test_sound_environments_pass(reference: str) -> None:
    observe = ("image",) if "MiniGrid" in reference else ()
    checked = check_environment(EnvironmentSettings(reference, observe=observe))
    assert checked.deterministic
    assert checked.notes == ()


def test_randomness_beside_the_seed_is_found() -> None:
    checked = check_environment(faulty(fault="random"))
    assert not checked.deterministic
    assert "first observation differs" in checked.notes[0]
    assert "resumed" in checked.notes[0]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("nan", "environment-invalid", "step 3: the reward is nan"),
        ("raise", "environment-failed", "a sample of its action space: RuntimeError: the motor"),
        ("shape", "environment-invalid", r"step 3 \(shape \[3\], float32\)"),
    ],
)
def test_faults_are_found_before_training(fault: str, code: str, words: str) -> None:
    with pytest.raises(GalleyError, match=words) as found:
        check_environment(faulty(fault=fault))
    assert found.value.code == code


def test_observations_outside_their_bounds_are_found() -> None:
    with pytest.raises(GalleyError, match="is not in the space") as found:
        check_environment(EnvironmentSettings("data.environments.test_looking:Outside"))
    assert found.value.code == "environment-invalid"


def test_agents_are_checked_together() -> None:
    assert check_environment(EnvironmentSettings("pettingzoo:data.environments.faulty:Pair")).deterministic


def test_a_description_has_what_gymnasium_says() -> None:
    seen = describe(EnvironmentSettings("gym:CartPole-v1", 4), seconds=0.05)
    assert seen.observations == ("4 numbers",)
    assert seen.actions == "one of 2"
    assert seen.time_limit == 500
    assert seen.rewards == (1.0, 1.0)
    assert seen.vector == "native"
    assert not seen.masked
    assert len(seen.example) == 4
    assert any("500 steps" in line for line in seen.lines())
    limited = EnvironmentSettings("gym:Pendulum-v1", wrappers={"time-limit": {"steps": 50}})
    shown = describe(limited, seconds=0.05)
    assert shown.time_limit == 50
    assert shown.vector == "serial"
    assert shown.actions == "1 numbers, from -2 to 2"
    assert describe(EnvironmentSettings("data.environments.faulty:Masked"), seconds=0.01).masked


def test_a_recording_is_the_episode_that_was_played(tmp_path: Path) -> None:
    made = record(
        EnvironmentSettings("gym:CartPole-v1"), lambda seen, masks: np.array([int(seen[0, 2] > 0)]), episodes=2
    )
    assert len(made.returns) == 2
    assert len(made.frames) == sum(made.returns) + 2
    assert made.frames[0].shape == (400, 600, 3)
    assert made.frames[0].std() > 5
    assert made.frames_per_second == 50
    write_recording(made, tmp_path / "play.gif")
    with Image.open(tmp_path / "play.gif") as gif:
        assert gif.size == (600, 400)
        assert 1 < sum(1 for _ in ImageSequence.Iterator(gif)) <= len(made.frames)
    assert [path.name for path in tmp_path.iterdir()] == ["play.gif"]


def test_a_recorded_player_is_told_what_is_allowed() -> None:
    told: list[list[bool]] = []

    def decide(seen: Any, masks: Any) -> Any:
        told.append(masks[0].tolist())
        return masks.argmax(axis=1)

    made = record(EnvironmentSettings("data.environments.faulty:MaskedPicture"), decide, most=6)
    one, two, three = [True, False, False], [False, True, False], [False, False, True]
    assert told == [one, two, three, one, two]
    assert sum(made.returns) == -1 + 0 + 1 - 1 + 0
    assert made.frames_per_second == 10


def test_what_cannot_be_drawn_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match="render_mode"):
        record(faulty(), lambda seen, masks: np.array([0]))
    made = record(EnvironmentSettings("gym:CartPole-v1"), lambda seen, masks: np.array([0]), most=3)
    assert len(made.frames) == 3
    with pytest.raises(GalleyError) as refused:
        write_recording(made, tmp_path / "play.avi")
    assert refused.value.code == "data-format"
