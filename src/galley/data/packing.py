"""From rows to micro-batches: documents end to end, rows shared out evenly, nothing padded and nothing lost."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from galley.data.batch import TokenBatch
    from galley.data.tokens import TokenSamples


def token_batch(samples: TokenSamples, rows: Sequence[int]) -> TokenBatch:
    """These rows end to end, each a document of its own, with the learned tokens of all of them.

    Args:
        samples: encoded rows.
        rows: numbers of the rows, in the order in which they are laid out.
    """
    import numpy as np
    import torch

    from galley.data.batch import TokenBatch

    assert rows, "a micro-batch has rows"
    ids = [samples.ids(row) for row in rows]
    lengths = np.array([len(part) for part in ids], dtype=np.int64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    ids_T = np.concatenate(ids).astype(np.int64)
    # The first token of a document is predicted by nothing; TokenSamples never marks it.
    target_N = np.flatnonzero(np.concatenate([samples.mask(row) for row in rows]))
    return TokenBatch(
        ids_T=torch.from_numpy(ids_T),
        positions_T=torch.from_numpy(np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)),
        bounds=tuple(bounds.tolist()),
        target_index_N=torch.from_numpy(target_N - 1),
        target_ids_N=torch.from_numpy(ids_T[target_N]),
    )


def split_rows(
    lengths: np.ndarray[Any, np.dtype[np.int64]], rows: Sequence[int], *, max_rows: int, max_tokens: int
) -> list[list[int]]:
    """Share the rows of a step out over as few micro-batches as the limits allow, with nearly equal tokens.

    The longest rows are placed first, each where the fewest tokens are. The same rows always give the same split. A
    row that is longer than `max_tokens` is a micro-batch of its own.

    Args:
        lengths: tokens of every row of the samples, [R].
        rows: the rows of the step.
        max_rows: most rows in one micro-batch.
        max_tokens: most tokens in one micro-batch.
    """
    assert min(max_rows, max_tokens) >= 1, "limits of a micro-batch are positive"
    size = {row: int(lengths[row]) for row in rows}
    alone = [[row] for row in rows if size[row] > max_tokens]
    rest = sorted((row for row in rows if size[row] <= max_tokens), key=lambda row: (-size[row], row))
    if not rest:
        return alone
    total = sum(size[row] for row in rest)
    fewest = max(-(-total // max_tokens), -(-len(rest) // max_rows))
    for number in range(fewest, len(rest) + 1):
        if (parts := _share(rest, size, number, max_rows, max_tokens)) is not None:
            return alone + [sorted(part) for part in parts]
    raise AssertionError("one row each always fits")


def _share(
    rows: Sequence[int], size: dict[int, int], number: int, max_rows: int, max_tokens: int
) -> list[list[int]] | None:
    """The rows in that many parts, or None when one would be too big."""
    parts: list[list[int]] = [[] for _ in range(number)]
    free = [(0, index) for index in range(number)]
    for row in rows:
        if not free:
            return None
        tokens, index = heapq.heappop(free)
        if tokens + size[row] > max_tokens:
            return None
        parts[index].append(row)
        if len(parts[index]) < max_rows:
            heapq.heappush(free, (tokens + size[row], index))
    return parts
