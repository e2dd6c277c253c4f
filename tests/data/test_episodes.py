"""Stored episodes: what is written is read back, foreign files are understood, and faults are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.episodes import StoredEpisodes, from_environment, read_episodes, write_episodes
from galley.methods.control.playing import RandomPlayer

pytestmark = pytest.mark.unit

COLUMNS = ("observations", "actions", "rewards", "successors", "terminated", "truncated")


def played(reference: str, episodes: int, *, num_envs: int = 2, **settings: Any) -> StoredEpisodes:
    made = open_environments(EnvironmentSettings(reference, num_envs, **settings))
    try:
        return from_environment(made, RandomPlayer(made.actions, seed=1), episodes, seed=7)
    finally:
        made.close()


def raw(**changes: Any) -> dict[str, Any]:
    """Two episodes of three and two steps: the first terminates, the second is truncated."""
    arrays: dict[str, Any] = {
        "observations": np.arange(10, dtype=np.float32).reshape(5, 2),
        "actions": np.array([0, 1, 2, 1, 0]),
        "rewards": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "terminated": np.array([False, False, True, False, False]),
        "truncated": np.array([False, False, False, False, True]),
    }
    return {key: value for key, value in {**arrays, **changes}.items() if value is not None}


def npz(folder: Path, **changes: Any) -> Path:
    path = folder / "some.npz"
    np.savez(path, **raw(**changes))
    return path


def jsonl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "some.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"episode": 0, "observation": [0.5, 1.5], "action": 1, "reward": 1.0, "terminated": False}
    return {**fields, **changes}


def same(one: StoredEpisodes, other: StoredEpisodes) -> bool:
    return all(
        np.array_equal(getattr(one, column), getattr(other, column))
        and getattr(one, column).dtype == getattr(other, column).dtype
        for column in COLUMNS
    )


@pytest.mark.parametrize("suffix", ["npz", "parquet", "jsonl"])
@pytest.mark.parametrize("reference", ["gym:CartPole-v1", "gym:Pendulum-v1"])
def test_what_is_written_is_read_back(tmp_path: Path, reference: str, suffix: str) -> None:
    episodes = played(reference, 4)
    write_episodes(tmp_path / f"some.{suffix}", episodes)
    back = read_episodes(tmp_path / f"some.{suffix}", {})
    assert same(episodes, back)
    if suffix != "jsonl":
        assert back.observations_layout == episodes.observations_layout
        assert back.actions_layout == episodes.actions_layout
    with pytest.raises(GalleyError, match="exists"):
        write_episodes(tmp_path / f"some.{suffix}", episodes)


@pytest.mark.parametrize("vector", ["serial", "native"])
def test_played_episodes_follow_the_world(vector: str) -> None:
    episodes = played("gym:CartPole-v1", 6, num_envs=3, vector=vector)
    assert len(episodes.starts) == 6
    assert (episodes.returns == np.diff([*episodes.starts, len(episodes)])).all(), "CartPole gives 1 for each step"
    assert episodes.terminated.sum() == 6
    going_on = ~(episodes.terminated | episodes.truncated)
    assert (episodes.successors[:-1][going_on[:-1]] == episodes.observations[1:][going_on[:-1]]).all()
    fallen = np.abs(episodes.successors[episodes.terminated])
    assert ((fallen[:, 2] > 0.2094) | (fallen[:, 0] > 2.4)).all(), "the pole lies or the cart left"


def test_a_time_limit_is_a_truncation() -> None:
    episodes = played("gym:Pendulum-v1", 2)
    assert episodes.truncated.sum() == 2
    assert not episodes.terminated.any()
    assert len(episodes) == 400


def test_names_of_d4rl_are_understood(tmp_path: Path) -> None:
    successors = np.ones((5, 2), np.float32)
    path = tmp_path / "d4rl.npz"
    arrays = raw(truncated=None, terminated=None)
    np.savez(path, **arrays, next_observations=successors, terminals=raw()["terminated"], timeouts=raw()["truncated"])
    episodes = read_episodes(path, {})
    assert (episodes.successors == 1).all()
    assert episodes.returns.tolist() == [6, 9]
    assert episodes.actions_layout.kind == "discrete"
    assert episodes.actions_layout.sizes == (3,)


def test_without_successors_a_truncated_last_step_is_left_out(tmp_path: Path) -> None:
    episodes = read_episodes(npz(tmp_path), {})
    assert episodes.rewards.tolist() == [1, 2, 3, 4]
    assert episodes.terminated.tolist() == [False, False, True, False]
    assert episodes.truncated.tolist() == [False, False, False, True]
    assert episodes.successors[[0, 1, 3]].tolist() == [[2, 3], [4, 5], [8, 9]]


def test_an_episode_that_just_stops_was_truncated(tmp_path: Path) -> None:
    rows = [row(episode=0), row(episode=0), row(episode=1), row(episode=1, terminated=True)]
    path = jsonl(tmp_path, [{**each, "successor": [0.0, 0.0]} for each in rows])
    episodes = read_episodes(path, {})
    assert episodes.truncated.tolist() == [False, True, False, False]
    assert episodes.terminated.tolist() == [False, False, False, True]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", **raw(rewards=np.full(5, 2.0)))
    np.savez(tmp_path / "a.npz", **raw(rewards=np.full(5, 1.0)))
    (tmp_path / "notes.txt").write_text("not read")
    episodes = read_episodes(tmp_path, {})
    assert episodes.rewards.tolist() == [1] * 4 + [2] * 4
    np.savez(tmp_path / "c.npz", **raw(actions=np.array([0, 1, 2, 3, 0])))
    with pytest.raises(GalleyError, match=r"c.npz: its observations or actions are not those of .*a.npz"):
        read_episodes(tmp_path, {})
    assert len(read_episodes(tmp_path, {"num_actions": 5})) == 12


def test_spaces_that_a_file_does_not_say(tmp_path: Path) -> None:
    box = read_episodes(npz(tmp_path, actions=np.linspace(-1, 1, 5)[:, None]), {"action_low": -2, "action_high": [2]})
    assert (box.actions_layout.low, box.actions_layout.high) == ((-2.0,), (2.0,))
    images = read_episodes(npz(tmp_path, observations=np.zeros((5, 8, 8, 3), np.uint8)), {})
    assert images.observations_layout.leaves[0].kind == "image"
    assert images.observations.shape == (4, 192)
    several = read_episodes(npz(tmp_path, actions=np.array([[0, 1]] * 5)), {"num_actions": [2, 3]})
    assert several.actions_layout.sizes == (2, 3)


@pytest.mark.parametrize(
    ("changes", "options", "code", "says"),
    [
        ({"rewards": None}, {}, "data-columns", "no 'rewards' among observations, actions, terminated, truncated"),
        ({"rewards": np.array([1, 2, np.nan, 4, 5])}, {}, "data-row", "row 3: rewards is nan"),
        ({"observations": np.array([[1, np.inf]] * 5)}, {}, "data-row", r"row 1: observations is \[1.0, inf\]"),
        ({"actions": np.array([0, 1, -1, 0, 0])}, {}, "data-row", "row 3: action is -1, expected choices from 0"),
        ({"actions": np.array([0, 1, 5, 0, 0])}, {"num_actions": 4}, "data-row", "row 3: action is 5"),
        ({"actions": np.array([0, 1])}, {}, "data-row", "actions has 2 rows, rewards has 5"),
        ({"terminated": np.array([0, 0, 2, 0, 0])}, {}, "data-row", "row 3: terminated is 2"),
        ({"successors": np.zeros((5, 3))}, {}, "data-row", "successors has 3 numbers a row, expected 2"),
        ({"observations": np.array(["a"] * 5)}, {}, "data-row", "observations are <U1, expected numbers"),
        ({"rewards": np.zeros(0)}, {}, "data-empty", "no steps"),
        ({"observations": np.array([None] * 5)}, {}, "data-format", "not a file of arrays of numbers"),
        ({}, {"action_low": 1}, "data-options", "actions are choices"),
        ({}, {"num_action": 1}, "data-options", "num_action"),
        ({}, {"num_actions": "3"}, "data-options", "'3' is no number of choices"),
    ],
)
def test_faults_of_arrays_are_named(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], code: str, says: str
) -> None:
    with pytest.raises(GalleyError, match=says) as caught:
        read_episodes(npz(tmp_path, **changes), options)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (row(reward="much"), "row 2: field 'reward': expected a number, found the text \"much\""),
        (row(observation=[1.0]), "row 2: field 'observation': expected a list of 2 numbers as in the first row"),
        (row(observation=[1.0, "x"]), "row 2: field 'observation': expected numbers"),
        (row(action=None), r"row 2: field 'action': expected a number or a list of numbers, found nothing \(null\)"),
        (row(terminated="no"), "row 2: field 'terminated': expected true or false"),
        (row(episode=None), "row 2: field 'episode': expected the number or name of an episode"),
        ({"episode": 0}, "row 2: field 'observation' is missing"),
    ],
)
def test_faults_of_tables_are_named(tmp_path: Path, second: dict[str, Any], says: str) -> None:
    with pytest.raises(GalleyError, match=says) as caught:
        read_episodes(jsonl(tmp_path, [row(), second, row(terminated=True)]), {})
    assert caught.value.code == "data-row"


def test_episodes_must_be_whole(tmp_path: Path) -> None:
    early = [row(), row(terminated=True), row(), row(episode=1)]
    with pytest.raises(GalleyError, match="row 2: the episode 0 ended, and row 3 belongs to it as well"):
        read_episodes(jsonl(tmp_path, early), {})
    with pytest.raises(GalleyError, match="the steps of episode 0 do not stand one after the other"):
        read_episodes(jsonl(tmp_path, [row(), row(episode=1), row()]), {})


def test_files_that_are_none(tmp_path: Path) -> None:
    for name, code in (("none.npz", "data-not-found"), ("some.txt", "data-format"), ("broken.npz", "data-format")):
        if name != "none.npz":
            (tmp_path / name).write_bytes(b"PK\x03\x04 not really")
        with pytest.raises(GalleyError) as caught:
            read_episodes(tmp_path / name, {})
        assert caught.value.code == code
    (tmp_path / "empty").mkdir()
    with pytest.raises(GalleyError, match="no stored episodes in this folder"):
        read_episodes(tmp_path / "empty", {})


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "boom",))

    np.savez(tmp_path / "some.npz", **raw(), extra=np.array([Bomb()], object))
    with pytest.raises(GalleyError) as caught:
        read_episodes(tmp_path / "some.npz", {})
    assert caught.value.code == "data-format"
    assert not (tmp_path / "boom").exists()
