"""Every target of a batch is computed once, in a row that holds its token, at its place in its document."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.data.batch import TokenBatch
from galley.models.fast.lanes import lanes_of

pytestmark = pytest.mark.unit


@settings(deadline=None, max_examples=150)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    prefix=st.integers(0, 40),
    threads=st.integers(1, 8),
    shared=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_targets_are_computed_once(lengths: list[int], prefix: int, threads: int, shared: bool, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 3, (prefix,), generator=random)
    rows = [torch.cat((start, torch.randint(0, 3, (length,), generator=random))) for length in lengths]
    ids = torch.cat(rows)
    bounds = (0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist())
    index = torch.nonzero(torch.rand(len(ids), generator=random) < 0.1).flatten()
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    batch = TokenBatch(ids, positions, bounds, index, ids[index])

    lanes = lanes_of(batch, threads, shared)
    assert len(lanes) <= threads
    places = [place for lane in lanes for place in lane.targets_N.tolist()]
    assert sorted(place for place in places if place < len(index)) == list(range(len(index)))
    for lane in lanes:
        for row, place in zip(lane.rows_N.tolist(), lane.targets_N.tolist(), strict=True):
            if place == len(index):  # a filler
                continue
            at = int(index[place])
            # All that the row sees: the prefix, then its own document up to it.
            (first, _), *_ = [bound for bound in lane.bounds if bound[0] <= row < bound[1]]
            before = lane.source_T[: lane.prefix].tolist() if first >= lane.prefix else []
            seen = batch.ids_T[torch.tensor(before + lane.source_T[first : row + 1].tolist())]
            assert torch.equal(seen, ids[at - int(positions[at]) : at + 1])
