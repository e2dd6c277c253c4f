"""Layouts: every space becomes rows of numbers, and is described so that a stored policy can use it."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from data.environments.faulty import spaces_of_every_kind
from galley.base import GalleyError
from galley.data.environments.layout import ActionLayout, ObservationLayout, action_layout, observation_layout
from galley.data.environments.rows import Acts, Rows
from galley.data.environments.seeds import episode_seed

pytestmark = pytest.mark.unit
KINDS = list(spaces_of_every_kind())


def simple() -> st.SearchStrategy[gymnasium.Space[Any]]:
    shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        shapes.map(lambda shape: spaces.Box(-5, 5, shape, np.float32)),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-3, 3)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
        st.integers(1, 4).map(spaces.MultiBinary),
    )


def nested() -> st.SearchStrategy[gymnasium.Space[Any]]:
    names = st.sampled_from(["near", "far", "own"])

    def deeper(inner: st.SearchStrategy[gymnasium.Space[Any]]) -> st.SearchStrategy[gymnasium.Space[Any]]:
        dicts = st.dictionaries(names, inner, min_size=1, max_size=3).map(spaces.Dict)
        return st.one_of(dicts, st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts))))

    return st.recursive(simple(), deeper, max_leaves=5)


@given(nested(), st.integers(0, 1000))
def test_a_row_holds_what_gymnasium_flattens(space: gymnasium.Space[Any], seed: int) -> None:
    layout = observation_layout(space)
    space.seed(seed)
    value = space.sample()
    row = np.zeros(layout.size, layout.dtype)
    layout.flatten(value, row)
    one_hot = []
    for leaf in layout.leaves:
        part = row[leaf.start : leaf.stop]
        if leaf.kind == "discrete":
            one_hot += [np.eye(size)[int(k)] for size, k in zip(leaf.sizes, part, strict=True)]
        else:
            one_hot.append(part)
    expected = np.asarray(spaces.flatten(space, value))
    np.testing.assert_allclose(np.concatenate(one_hot), expected, rtol=1e-6)
    assert sum(leaf.num_features for leaf in layout.leaves) == len(expected)


@given(nested())
def test_layouts_survive_json(space: gymnasium.Space[Any]) -> None:
    layout = observation_layout(space)
    assert ObservationLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize("space", KINDS, ids=str)
def test_the_fast_way_into_rows_equals_the_plain_one(space: gymnasium.Space[Any]) -> None:
    layout = observation_layout(space)
    space.seed(1)
    rows, values = Rows(layout, 4), [space.sample() for _ in range(4)]
    flat = rows.new()
    expected = np.zeros_like(flat)
    for index, value in enumerate(values):
        rows.put(index, value)
        layout.flatten(value, expected[index])
    np.testing.assert_array_equal(flat, expected)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 2], start=[1, -4]),
        spaces.MultiBinary(3),
        spaces.Box(np.array([-2, -np.inf], np.float32), np.array([2, np.inf], np.float32)),
        spaces.Box(-1, 1, (2, 2), np.float32),
    ],
    ids=str,
)
def test_actions_are_what_the_space_contains(space: gymnasium.Space[Any]) -> None:
    layout = action_layout(space)
    random = np.random.default_rng(0)
    if layout.kind == "discrete":
        actions = random.integers(0, layout.sizes[0], 5)
    elif layout.kind == "box":
        actions = random.uniform(-1, 1, (5, layout.size)).astype(np.float32)
    else:
        actions = random.integers(0, layout.sizes, (5, layout.size))
    chosen, natives = Acts(layout).split(actions)
    assert all(native in space for native in natives)
    np.testing.assert_array_equal(np.array(chosen), actions)
    assert ActionLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


def test_unknown_spaces_and_keys_are_refused() -> None:
    with pytest.raises(GalleyError, match="'words'") as refused:
        observation_layout(spaces.Dict({"words": spaces.Text(5), "x": spaces.Discrete(2)}))
    assert refused.value.code == "environment-unsupported"
    assert "data.options.observe" in refused.value.hint
    with pytest.raises(GalleyError) as unknown:
        observation_layout(spaces.Dict({"x": spaces.Discrete(2)}), observe=["y"])
    assert unknown.value.code == "data-options"
    assert "x" in unknown.value.hint
    with pytest.raises(GalleyError) as integers:
        action_layout(spaces.Box(0, 9, (2,), np.int64))
    assert integers.value.code == "environment-unsupported"


def test_seeds_of_episodes_differ_and_are_reproducible() -> None:
    seeds = [episode_seed(s, copy, k) for s in range(3) for copy in range(16) for k in range(64)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    bits = np.array(seeds)[:, None] >> np.arange(31) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < 0.05
    assert episode_seed(1, 2, 3) == episode_seed(1, 2, 3) != episode_seed(1, 3, 2)
