"""Filling a batch up to round sizes."""

from __future__ import annotations

import pytest
import torch

from galley.data.batch import TokenBatch
from galley.models.padding import filled


@pytest.mark.parametrize("lengths", [[1], [3, 5], [64], [7] * 9, [40, 30]])
def test_a_filled_batch_has_round_sizes_and_the_same_documents(lengths: list[int]) -> None:
    total = sum(lengths)
    bounds = [0]
    for length in lengths:
        bounds.append(bounds[-1] + length)
    positions = torch.cat([torch.arange(length) for length in lengths])
    index = torch.arange(total - 1)
    batch = TokenBatch(torch.arange(total), positions, tuple(bounds), index, index + 1)

    whole = filled(batch)

    assert whole.num_tokens % 64 == 0
    assert whole.num_targets % 16 == 0
    assert whole.bounds[: len(bounds)] == batch.bounds
    assert torch.equal(whole.ids_T[:total], batch.ids_T)
    assert torch.equal(whole.target_ids_N[: total - 1], batch.target_ids_N)
    for start, stop in zip(whole.bounds, whole.bounds[1:], strict=False):
        assert torch.equal(whole.positions_T[start:stop], torch.arange(stop - start))
        assert stop - start <= max(lengths)  # no longer than what the layout was chosen for
    assert bool((whole.target_index_N < whole.num_tokens).all())
