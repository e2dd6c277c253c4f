"""Random generators continue from what was stored of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from galley.base.generators import generator_state, load_generator

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox])
def test_a_stored_generator_continues(kind: type[np.random.BitGenerator]) -> None:
    one, other = (np.random.Generator(kind(seed)) for seed in (1, 2))
    one.integers(0, 10, dtype=np.int32)  # leaves half a word behind
    stored = generator_state(one)
    if kind is np.random.PCG64:
        stored = json.loads(json.dumps(stored), parse_int=float)
    load_generator(other, stored)
    np.testing.assert_array_equal(one.integers(0, 10, 5, dtype=np.int32), other.integers(0, 10, 5, dtype=np.int32))
    np.testing.assert_array_equal(one.standard_normal(5), other.standard_normal(5))
