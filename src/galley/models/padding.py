"""Documents of unequal length in groups that need little padding, and batches filled up to few different sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from galley.data.batch import TokenBatch

PADDING_SHARE = 0.25
"""Padding that a group may have, as a share of its tokens."""

_TOKENS, _TARGETS = 64, 16


def filled(batch: TokenBatch) -> TokenBatch:
    """The batch with filler documents behind it, and filler targets in them, so that its sizes are round.

    On a CPU each new size of a low-precision product costs a compilation and memory that the library keeps. Nobody
    sees a filler: documents are kept apart, and the caller drops the last rows. Elsewhere the batch stays as it is.
    """
    if batch.ids_T.device.type != "cpu" or not batch.num_tokens:
        return batch
    targets = -batch.num_targets % _TARGETS
    at, tokens = batch.num_tokens, -batch.num_tokens % _TOKENS
    longest = max(stop - start for start, stop in zip(batch.bounds, batch.bounds[1:], strict=False))
    ends = [*range(at + longest, at + tokens, longest), at + tokens] if tokens else []
    return replace(
        batch,
        ids_T=torch.cat([batch.ids_T, batch.ids_T[:1].expand(tokens)]),
        positions_T=torch.cat([batch.positions_T, torch.arange(tokens) % longest]),
        bounds=(*batch.bounds, *ends),
        target_index_N=torch.cat([batch.target_index_N, torch.full((targets,), at + tokens - 1)]),
        target_ids_N=torch.cat([batch.target_ids_N, torch.zeros(targets, dtype=torch.int64)]),
    )


def groups_of_similar_length(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Document numbers in groups, longest first, so that little is padding."""
    group: list[int] = []
    tokens = 0
    for d in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        longest = lengths[group[0]] if group else lengths[d]
        if longest * (len(group) + 1) > (1 + PADDING_SHARE) * (tokens + lengths[d]):
            yield tuple(group)
            group, tokens = [], 0
        group.append(d)
        tokens += lengths[d]
    if group:
        yield tuple(group)
