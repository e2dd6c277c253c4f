"""Wrappers by name: what they do, and what is said of wrong names and settings."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from data.environments.faulty import Faulty
from data.environments.playing import FAULTY, opened, play
from galley.base import GalleyError
from galley.data.environments.base import Episode
from galley.data.environments.options import environment_settings
from galley.data.environments.wrappers import registry
from galley.data.environments.wrappers.atari import Atari, area_weights
from galley.data.environments.wrappers.atari import Config as AtariConfig
from galley.data.environments.wrappers.frame_stack import FrameStack

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("wrappers", "code", "hint"),
    [
        ({"time-limt": {"steps": 3}}, "name-unknown", "did you mean time-limit?"),
        (["frame-stak"], "name-unknown", "did you mean frame-stack?"),
        ({"time-limit": {"step": 3}}, "data-options", "did you mean steps?"),
        ({"time-limit": {}}, "data-options", "steps"),
        ({"time-limit": {"steps": 0}}, "data-options", ""),
        ({"frame-stack": {"frames": "four"}}, "data-options", ""),
    ],
)
def test_wrong_names_and_settings_are_refused_before_anything_is_made(wrappers: Any, code: str, hint: str) -> None:
    with pytest.raises(GalleyError) as refused:
        environment_settings("no_such_module:make", {"wrappers": wrappers}, num_envs=1)
    assert refused.value.code == code
    assert hint in refused.value.message + refused.value.hint


def test_every_wrapper_has_described_settings() -> None:
    for name in registry.own_names():
        kind = registry.get(name)
        assert kind.name == name
        assert all(field.description for field in kind.Config.model_fields.values())


def test_stacked_vectors_equal_gymnasiums() -> None:
    theirs = gymnasium.wrappers.FrameStackObservation(Faulty(), 3)
    mine = FrameStack(Faulty(), 3)
    assert mine.observation_space.shape == (6,)
    np.testing.assert_array_equal(mine.reset(seed=1)[0], theirs.reset(seed=1)[0].reshape(-1))
    for _ in range(5):
        np.testing.assert_array_equal(mine.step(0)[0], theirs.step(0)[0].reshape(-1))


def test_stacked_images_keep_their_form() -> None:
    class Pictures(Faulty):
        observation_space = gymnasium.spaces.Box(0, 255, (4, 5, 3), dtype=np.uint8)

        def _seen(self) -> Any:
            return np.full((4, 5, 3), self.count, np.uint8)

    mine = FrameStack(Pictures(), 2)
    mine.reset(seed=0)
    value = mine.step(0)[0]
    assert value.shape == mine.observation_space.shape == (4, 5, 6)
    assert value.dtype == np.uint8
    assert value[0, 0].tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(GalleyError) as refused:
        opened("gym:FrozenLake-v1", 1, wrappers={"frame-stack": {}})
    assert refused.value.code == "environment-unsupported"


def test_rewards_and_actions_are_rescaled() -> None:
    scaled = opened(FAULTY, 1, wrappers={"scale-reward": {"factor": 0.5}, "clip-reward": {"low": 0.0, "high": 0.2}})
    scaled.reset(0)
    assert play(scaled, 1)[0].rewards.tolist() == [np.float32(0.2)]
    plain, rescaled = opened("gym:Pendulum-v1", 1), opened("gym:Pendulum-v1", 1, wrappers={"rescale-action": {}})
    assert (rescaled.actions.low, rescaled.actions.high) == ((-1.0,), (1.0,))
    plain.reset(0), rescaled.reset(0)
    one, other = plain.step(np.array([[1.0]], np.float32)), rescaled.step(np.array([[0.5]], np.float32))
    np.testing.assert_allclose(one.observations, other.observations, rtol=1e-6)
    with pytest.raises(GalleyError, match=r"low 1\.0 is not below high 0\.0"):
        opened("gym:Pendulum-v1", 1, wrappers={"rescale-action": {"low": 1.0, "high": 0.0}})


def test_shrinking_means_over_areas() -> None:
    picture = np.random.default_rng(0).uniform(0, 255, (12, 6)).astype(np.float32)
    small = area_weights(12, 4) @ picture @ area_weights(6, 3).T
    np.testing.assert_allclose(small, picture.reshape(4, 3, 3, 2).mean((1, 3)), rtol=1e-5)
    weights = area_weights(5, 2)
    np.testing.assert_allclose(weights, np.array([[2, 2, 1, 0, 0], [0, 0, 1, 2, 2]]) / 5, rtol=1e-6)


def breakout(**settings: Any) -> Atari:
    import ale_py

    gymnasium.register_envs(ale_py)
    made = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
    return Atari(made, AtariConfig(**settings))


def console(made: Atari) -> Any:
    """The emulator itself."""
    game: Any = made.env.unwrapped
    return game.ale


def test_a_lost_life_ends_the_episode_but_not_the_game() -> None:
    """The reported scores are those of whole games, as a copy without `episodic_life` gets them."""
    settings = {"noops": 0, "fire": True}
    mine = opened("gym:ALE/Breakout-v5", 1, wrappers={"atari": settings}, kwargs={"repeat_action_probability": 0.0})
    mine.reset(0)
    random = np.random.default_rng(0)
    ends = 0
    reported: list[Episode] = []
    for _ in range(900):
        step = mine.step(random.integers(0, 4, 1))
        ends += int(step.terminated[0])
        reported += step.episodes
        assert abs(step.rewards[0]) in (0, 1)
        if reported:
            break
    assert ends == 5, "Breakout has five lives"
    assert len(reported) == 1
    assert reported[0].length > 50
    mine.close()


def test_pictures_are_the_brightest_of_two_frames_shrunk() -> None:
    mine = breakout(noops=0, fire=False, episodic_life=False)
    mine.reset(seed=0)
    ale = console(mine)
    screens = []
    twin = breakout(noops=0, fire=False, episodic_life=False)
    twin.reset(seed=0)
    for _ in range(4):
        twin.env.step(3)
        screens.append(console(twin).getScreenGrayscale())
    value = mine.step(3)[0]
    height, width = ale.getScreenDims()
    expected = np.maximum(screens[-1], screens[-2]).astype(np.float32)
    expected = area_weights(height, 84) @ expected @ area_weights(width, 84).T
    np.testing.assert_allclose(value, expected, atol=0.51)
    assert value.dtype == np.uint8
    assert value.std() > 5


def test_the_atari_wrapper_says_what_it_cannot_wrap_and_what_it_needs() -> None:
    with pytest.raises(GalleyError, match="frameskip to be 1"):
        opened("gym:ALE/Pong-v5", 1, wrappers={"atari": {}}, kwargs={"frameskip": 4})
    with pytest.raises(GalleyError) as refused:
        opened("data.environments.faulty:masked_inside", 1, wrappers={"atari": {}}, kwargs={})
    assert refused.value.code in ("environment-unsupported", "environment-failed")
