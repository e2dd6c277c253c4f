"""Copies in one process: exact continuation, episodes that end, and faults named with copy and step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from data.environments.faulty import Spoiler
from data.environments.playing import FAULTY, assert_same, opened, play
from galley import checkpoint
from galley.base import GalleyError
from galley.data.environments import registered

pytestmark = pytest.mark.unit

WORLDS: list[tuple[str, dict[str, Any], int]] = [
    ("gym:CartPole-v1", {"vector": "native"}, 60),
    ("gym:CartPole-v1", {"vector": "serial"}, 60),
    ("gym:Pendulum-v1", {"vector": "serial"}, 205),
    ("gym:MountainCarContinuous-v0", {}, 60),
    ("gym:LunarLander-v3", {}, 120),
    ("gym:HalfCheetah-v5", {"wrappers": {"time-limit": {"steps": 30}}}, 50),
    ("gym:MiniGrid-Empty-5x5-v0", {"observe": ("image", "direction")}, 60),
    ("gym:ALE/Pong-v5", {"wrappers": {"atari": {}, "frame-stack": {"frames": 4}}}, 12),
]


@pytest.mark.parametrize(("reference", "settings", "steps"), WORLDS, ids=[f"{w[0]}-{w[1]}" for w in WORLDS])
def test_a_loaded_state_continues_bit_for_bit(reference: str, settings: Any, steps: int) -> None:
    one, other = opened(reference, 2, **settings), opened(reference, 2, **settings)
    one.reset(3)
    before = play(one, steps)
    state = one.state()
    seen = other.load_state(state)
    np.testing.assert_array_equal(seen, before[-1].observations)
    assert_same(play(one, 12, seed=9), play(other, 12, seed=9))
    one.close()
    other.close()


def test_a_state_survives_a_checkpoint(tmp_path: Path) -> None:
    one, other = opened("gym:Acrobot-v1", 2), opened("gym:Acrobot-v1", 2)
    one.reset(1)
    play(one, 30)
    checkpoint.save(tmp_path, dict(one.state()))
    other.load_state(checkpoint.load(tmp_path))
    assert_same(play(one, 20, seed=5), play(other, 20, seed=5))


def test_rows_equal_gymnasium_played_with_the_same_seeds() -> None:
    from galley.data.environments.seeds import episode_seed

    mine = opened("gym:Acrobot-v1", 2, vector="serial")
    first = mine.reset(7)
    theirs = [gymnasium.make("Acrobot-v1") for _ in range(2)]
    np.testing.assert_array_equal(first, [made.reset(seed=episode_seed(7, i, 0))[0] for i, made in enumerate(theirs)])
    for action in (0, 2, 1, 2):
        step = mine.step(np.array([action, 2 - action]))
        for row, made in enumerate(theirs):
            value, reward, *_ = made.step([action, 2 - action][row])
            np.testing.assert_array_equal(step.observations[row], value)
            assert step.rewards[row] == reward


def test_an_end_shows_both_the_last_and_the_next_observation() -> None:
    mine = opened(FAULTY, 2, kwargs={"length": 2})
    mine.reset(0)
    first, second = play(mine, 2)
    assert first.finals is None
    assert first.successors is first.observations
    assert second.finals is not None
    assert second.finals[:, 0].tolist() == [2, 2]
    assert second.observations[:, 0].tolist() == [0, 0]
    assert second.finals[0, 1] != second.observations[0, 1], "the next episode has another seed"
    assert [tuple(episode) for episode in second.episodes] == [(2.0, 2, 0), (2.0, 2, 1)]
    assert second.terminated.all()
    assert not second.truncated.any()


def test_a_limit_truncates_unless_the_environment_ended_by_itself() -> None:
    limited = opened(FAULTY, 1, kwargs={"length": 5}, wrappers={"time-limit": {"steps": 3}})
    limited.reset(0)
    last = play(limited, 3)[-1]
    assert (last.terminated[0], last.truncated[0]) == (False, True)
    both = opened(FAULTY, 1, kwargs={"length": 3}, wrappers={"time-limit": {"steps": 3}})
    both.reset(0)
    last = play(both, 3)[-1]
    assert (last.terminated[0], last.truncated[0]) == (True, False)


def test_a_truncated_constant_reward_has_no_advantage() -> None:
    """CONFORMANCE 32: reward 1, cut off after ten steps, V = 1 / (1 - gamma) everywhere: nothing to learn."""
    gamma, mine = 0.9, opened(FAULTY, 2, kwargs={"length": 99}, wrappers={"time-limit": {"steps": 10}})
    mine.reset(0)
    value = 1 / (1 - gamma)
    for step in play(mine, 25):
        after = np.where(step.terminated, 0.0, value)
        np.testing.assert_allclose(step.rewards + gamma * after - value, 0.0, atol=1e-9)


def test_actions_are_remembered_even_when_the_agent_or_the_environment_overwrites_them() -> None:
    mine, other = opened("data.environments.faulty:Spoiler", 1), Spoiler()
    mine.reset(0)
    actions = np.array([[0.25]], np.float32)
    step = mine.step(actions)
    actions[:] = 99
    assert step.observations[0, 0] == 0.5
    loaded = opened("data.environments.faulty:Spoiler", 1)
    assert loaded.load_state(mine.state())[0, 0] == 0.5
    assert other.total == 0.0


def test_masks_of_an_environment_and_of_what_is_around_it() -> None:
    for factory in ("Masked", "masked_inside"):
        mine = opened(f"data.environments.faulty:{factory}", 2, vector="serial")
        assert mine.reset(0).tolist() == [[0], [0]], "categories count from 0"
        step = mine.step(np.array([0, 2]))
        assert step.rewards.tolist() == [-1, 1], "so do actions, the environment's begin at -1"
        masks = mine.action_masks()
        assert masks is not None
        assert masks.tolist() == [[False, True, False]] * 2


@pytest.mark.parametrize("vector", ["serial", pytest.param("processes", marks=pytest.mark.dist)])
@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("nan", "environment-invalid", "environment 0, step 3 of episode 0: the reward is nan"),
        ("raise", "environment-failed", "environment 0 raised at step 3 of episode 0: RuntimeError: the motor is on"),
        ("shape", "environment-invalid", r"an observation has the shape \[3\]; the environment's space says \[2\]"),
    ],
)
def test_faults_are_named(vector: Any, fault: str, code: str, words: str) -> None:
    mine = opened(FAULTY, 2, kwargs={"fault": fault}, vector=vector)
    try:
        mine.reset(0)
        with pytest.raises(GalleyError, match=words) as failed:
            play(mine, 3)
        assert failed.value.code == code
    finally:
        mine.close()


@pytest.mark.parametrize(
    ("reference", "code", "hint"),
    [
        ("gym:CartPol-v1", "data-not-found", "CartPole-v1"),
        ("no_such_module:make", "data-not-found", "module:factory"),
        ("data.environments.faulty:Nothing", "data-not-found", ""),
        ("nothing.py:make", "data-not-found", ""),
        ("builtins:dict", "environment-invalid", "gymnasium.Env"),
        ("pettingzoo:butterfly/pistonbal_v6", "data-not-found", "pistonball_v6"),
    ],
)
def test_names_that_do_not_exist(reference: str, code: str, hint: str) -> None:
    with pytest.raises(GalleyError) as failed:
        opened(reference)
    assert failed.value.code == code
    assert hint in failed.value.hint


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registered._PACKAGES, "ALE/", ("no_such_package", "atari"))
    with pytest.raises(GalleyError) as failed:
        opened("gym:ALE/Pong-v5")
    assert failed.value.code == "package-missing"
    assert "galley-train[atari]" in failed.value.hint


def test_wrong_arguments_are_told_with_the_environments_own_words() -> None:
    with pytest.raises(GalleyError, match="unexpected keyword argument 'gravity'") as failed:
        opened("gym:CartPole-v1", kwargs={"gravity": 1}, vector="serial")
    assert failed.value.code == "environment-failed"
