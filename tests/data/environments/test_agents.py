"""Worlds of several agents: rows, agents that leave, groups with policies of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from data.environments.playing import assert_same, opened, play
from galley.base import GalleyError
from galley.data.environments.groups import Group, split

pytestmark = pytest.mark.unit
PAIR = "pettingzoo:data.environments.faulty:Pair"


def test_rows_are_agents_and_those_that_left_are_idle() -> None:
    mine = opened(PAIR, 3)
    assert mine.num_envs == 4, "two worlds of two agents"
    first = mine.reset(0)
    assert first[0, 1] == first[1, 1] != first[2, 1], "worlds have seeds of their own"
    steps = [mine.step(np.array([1, 0, 0, 1])) for _ in range(5)]
    terminated = [step.terminated.tolist() for step in steps]
    assert terminated[1] == [False, True, False, True]
    assert terminated[3] == [True, False, True, False]
    idle = [None if step.idle is None else step.idle.tolist() for step in steps]
    assert idle == [None, None, [False, True] * 2, [False, True] * 2, None]
    assert [tuple(e) for e in steps[1].episodes] == [(0.0, 2, 1), (2.0, 2, 3)]
    assert [tuple(e) for e in steps[3].episodes] == [(4.0, 4, 0), (0.0, 4, 2)]
    finals = steps[3].finals
    assert finals is not None
    assert finals[:, 0].tolist() == [4, 2, 4, 2]
    assert steps[3].observations[:, 0].tolist() == [0] * 4


@pytest.mark.parametrize("reference", [PAIR, "pettingzoo:mpe/simple_spread_v3"])
def test_a_loaded_state_continues_bit_for_bit(reference: str) -> None:
    one, other = opened(reference, 4), opened(reference, 4)
    one.reset(2)
    play(one, 31)
    other.load_state(one.state())
    assert_same(play(one, 9, seed=1), play(other, 9, seed=1))


def test_groups_together_play_what_the_whole_plays() -> None:
    whole, alone = opened(PAIR, 4), opened(PAIR, 4)
    groups = split(whole, [[0, 2], [1, 3]])
    actions = np.random.default_rng(0).integers(0, 2, (9, 4))
    alone.reset(5)
    expected = [alone.step(row) for row in actions]

    def run(group: Group, rows: list[int]) -> list[Any]:
        group.reset(5)
        return [group.step(chosen[rows]) for chosen in actions]

    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(run, groups, [[0, 2], [1, 3]]))
    for rows, steps in zip(([0, 2], [1, 3]), parts, strict=True):
        for step, all_rows in zip(steps, expected, strict=True):
            np.testing.assert_array_equal(step.observations, all_rows.observations[rows])
            np.testing.assert_array_equal(step.rewards, all_rows.rewards[rows])
            assert [e.ret for e in step.episodes] == [e.ret for e in all_rows.episodes if e.environment in rows]


def test_a_group_that_leaves_ends_the_others() -> None:
    first, second = split(opened(PAIR, 2), [[0], [1]])
    first.reset(0), second.reset(0)
    second.close()
    with pytest.raises(GalleyError, match="another group"):
        first.step(np.array([0]))
    with pytest.raises(ValueError, match="partition"):
        split(opened(PAIR, 2), [[0], [0]])


def test_agents_that_differ_are_refused() -> None:
    with pytest.raises(GalleyError, match="same observation_space: a has") as refused:
        opened(PAIR, 2, kwargs={"uneven": True})
    assert refused.value.code == "environment-unsupported"
