"""Micro-batches: every row once, within limits, evenly; documents end to end with the right targets (items 1, 5, 6)."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.data.cache import TokenStore
from galley.data.packing import split_rows, token_batch
from galley.data.tokens import TokenSamples

pytestmark = pytest.mark.unit

Row = list[tuple[int, bool]]


def samples_of(rows: list[Row]) -> TokenSamples:
    ids = np.array([token for row in rows for token, _ in row], dtype=np.int32)
    mask = np.array([learn for row in rows for _, learn in row], dtype=np.uint8)
    store = TokenStore(ids, mask, np.cumsum([0, *map(len, rows)]), Counter())
    return TokenSamples(store, max_length=1000, pieces=False)


learnable = st.tuples(
    st.tuples(st.integers(0, 99), st.booleans()),
    st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=12),
    st.tuples(st.integers(0, 99), st.just(True)),
).map(lambda parts: [parts[0], *parts[1], parts[2]])


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(learnable, min_size=1, max_size=9), order=st.randoms())
def test_a_batch_holds_each_document_and_its_targets(rows: list[Row], order: random.Random) -> None:
    samples = samples_of(rows)
    numbers = list(range(len(rows)))
    order.shuffle(numbers)
    batch = token_batch(samples, numbers)
    assert batch.ids_T.tolist() == [token for number in numbers for token, _ in rows[number]]
    assert batch.positions_T.tolist() == [place for number in numbers for place in range(len(rows[number]))]
    assert np.diff(batch.bounds).tolist() == [len(rows[number]) for number in numbers]
    assert (batch.num_rows, batch.num_tokens) == (len(rows), sum(map(len, rows)))
    expected = [token for number in numbers for token, learn in rows[number][1:] if learn]
    assert batch.target_ids_N.tolist() == expected
    assert batch.num_targets == len(expected) == samples.report.supervised_tokens
    # A target is the token behind the one that predicts it, in the same document.
    assert torch.equal(batch.ids_T[batch.target_index_N + 1], batch.target_ids_N)
    document = np.searchsorted(batch.bounds, batch.target_index_N.numpy(), side="right")
    assert (document == np.searchsorted(batch.bounds, batch.target_index_N.numpy() + 1, side="right")).all()
    assert {batch.ids_T.dtype, batch.positions_T.dtype, batch.target_index_N.dtype} == {torch.int64}


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    max_rows=st.integers(1, 12),
    max_tokens=st.integers(1, 80),
    data=st.data(),
)
def test_a_split_keeps_rows_and_limits(lengths: list[int], max_rows: int, max_tokens: int, data: st.DataObject) -> None:
    array = np.array(lengths, dtype=np.int64)
    rows = data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True))
    parts = split_rows(array, rows, max_rows=max_rows, max_tokens=max_tokens)
    assert sorted(row for part in parts for row in part) == sorted(rows)
    assert all(parts)
    for part in parts:
        assert len(part) <= max_rows
        assert sum(lengths[row] for row in part) <= max_tokens or len(part) == 1
    assert parts == split_rows(array, rows, max_rows=max_rows, max_tokens=max_tokens)
    shuffled = data.draw(st.permutations(rows))
    again = split_rows(array, shuffled, max_rows=max_rows, max_tokens=max_tokens)
    assert sorted(parts) == sorted(again), "the order in which rows are named does not change who shares a micro-batch"


def test_a_split_is_even_and_small() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(4, 0.8, 64).astype(np.int64) + 1
    parts = split_rows(lengths, range(64), max_rows=64, max_tokens=1024)
    tokens = [int(lengths[part].sum()) for part in parts]
    assert len(parts) <= -(-int(lengths.sum()) // 1024) + 1
    assert max(tokens) - min(tokens) < 0.1 * max(tokens)


def test_a_row_over_the_limit_is_alone() -> None:
    lengths = np.array([5, 100, 5, 5], dtype=np.int64)
    assert split_rows(lengths, [0, 1, 2, 3], max_rows=8, max_tokens=20) == [[1], [0, 2, 3]]
    assert split_rows(lengths, [], max_rows=8, max_tokens=20) == []
