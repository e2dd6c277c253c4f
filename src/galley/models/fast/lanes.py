"""How a batch is cut for the fast path: what need not be computed, a common prefix, and one lane per core."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from galley.data.batch import TokenBatch

_MIN_LANE_TOKENS = 96
"""Shorter products leave a core waiting for the weights."""
_MAX_IMBALANCE = 1.35
"""Longest lane over the mean; beyond it, fewer lanes with more cores each are faster."""
_BUCKET = 32
"""A lane is filled up to a multiple of this: each new shape costs the library that multiplies matrices a compilation
and about 10 MB that it keeps (measured on SmolLM2), so that there should be few of them."""
_ROW_BUCKET = 16
"""The rows of targets are filled up likewise."""
_MIN_SAVED_TOKENS = 16
"""A prefix is shared when at least so many tokens need not be computed."""


@dataclass(frozen=True)
class LaneBatch:
    """Documents of one lane.

    Args:
        source_T: rows of the batch, in the lane's order.
        bounds: (start, stop) of each document in the lane, from long to short; with a prefix, that comes first. The
            last one ends with the fillers.
        fillers: tokens at the end from which nothing is learned, so that they take no part in any gradient.
        prefix: its tokens, or 0.
        rows_N: rows whose successors are learned, then fillers.
        targets_N: their places among the batch's targets; that of a filler is one beyond the last.
    """

    source_T: Tensor
    bounds: tuple[tuple[int, int], ...]
    fillers: int
    prefix: int
    rows_N: Tensor
    targets_N: Tensor


def lanes_of(batch: TokenBatch, threads: int, shared_prefix: bool) -> list[LaneBatch]:
    """Cut a batch into lanes: documents without targets and tokens after the last target are left out.

    Args:
        batch: documents end to end.
        threads: cores to use.
        shared_prefix: compute what all documents start with once per lane.
    """
    index = batch.target_index_N.tolist()
    targets: dict[int, list[int]] = {}
    for place, at in enumerate(index):
        targets.setdefault(bisect_right(batch.bounds, at) - 1, []).append(place)
    if not targets:
        return []
    documents = {
        number: (batch.bounds[number], max(index[place] for place in places) + 1) for number, places in targets.items()
    }
    prefix = _common_prefix(batch.ids_T, list(documents.values())) if shared_prefix else 0
    lengths = {number: stop - first - prefix for number, (first, stop) in documents.items()}
    lanes = []
    for numbers in _share_out(lengths, threads, prefix):
        lanes.append(_lane(numbers, documents, targets, index, prefix if len(numbers) > 1 else 0))
    return lanes


def _common_prefix(ids_T: Tensor, documents: Sequence[tuple[int, int]]) -> int:
    """Tokens that all documents start with; each keeps at least one of its own."""
    shortest = min(stop - first for first, stop in documents) - 1
    starts_DS = torch.stack([ids_T[first : first + shortest] for first, _ in documents])
    same = int((starts_DS == starts_DS[0]).all(0).cumprod(0).sum())
    return same if same * (len(documents) - 1) >= _MIN_SAVED_TOKENS else 0


def _share_out(lengths: dict[int, int], threads: int, prefix: int) -> list[list[int]]:
    """Documents for each lane: longest first, each to the lane with least to do."""
    total = sum(lengths.values())
    count = max(1, min(threads, len(lengths), total // _MIN_LANE_TOKENS))
    order = sorted(lengths, key=lambda number: (-lengths[number], number))
    while True:
        lanes: list[list[int]] = [[] for _ in range(count)]
        load = [0] * count
        for number in order:
            lane = load.index(min(load))
            lanes[lane].append(number)
            load[lane] += lengths[number]
        if count == 1 or max(load) + prefix <= _MAX_IMBALANCE * (total / count + prefix):
            return [sorted(lane) for lane in lanes]
        count //= 2


def _lane(
    numbers: list[int],
    documents: dict[int, tuple[int, int]],
    targets: dict[int, list[int]],
    index: list[int],
    prefix: int,
) -> LaneBatch:
    pieces, bounds, rows, places = [], [], [], []
    at = 0
    if prefix:
        first = documents[numbers[0]][0]
        pieces.append(torch.arange(first, first + prefix))
        bounds.append((0, prefix))
        at = prefix
    for number in sorted(numbers, key=lambda number: documents[number][0] - documents[number][1]):
        first, stop = documents[number]
        pieces.append(torch.arange(first + prefix, stop))
        for place in targets[number]:
            offset = index[place] - first
            rows.append(offset if offset < prefix else at + offset - prefix)
            places.append(place)
        bounds.append((at, at + stop - first - prefix))
        at = bounds[-1][1]
    more_rows, fillers = -len(rows) % _ROW_BUCKET, -at % _BUCKET
    rows += [0] * more_rows
    places += [len(index)] * more_rows
    pieces.append(torch.full((fillers,), documents[numbers[0]][0]))
    bounds[-1] = (bounds[-1][0], at + fillers)
    return LaneBatch(torch.cat(pieces), tuple(bounds), fillers, prefix, torch.tensor(rows), torch.tensor(places))
