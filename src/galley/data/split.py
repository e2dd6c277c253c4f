"""Held-out rows: chosen by what a row says, so that order, other rows and repetitions change nothing."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST_ROWS = 10
"""With fewer rows nothing is held out."""
_LARGEST_MINIMUM = 3


def held_out_keys(keys: Sequence[int], share: float) -> frozenset[int]:
    """Keys of the rows that are held out.

    A row is held out when its key, read as a fraction of its range, is below the share. That depends on the row
    alone: rows that are added or moved later leave every other row where it was, and equal rows are on the same
    side. When this would hold out hardly any of a small number of rows, the smallest keys are taken instead.

    Args:
        keys: 64-bit hash of each row.
        share: share of the rows, 0 to 0.5.

    Returns:
        The keys; none with fewer than ten rows or a share of 0.
    """
    if share <= 0 or len(keys) < FEWEST_ROWS:
        return frozenset()
    distinct = set(keys)
    below = frozenset(key for key in distinct if key < share * 2.0**64)
    fewest = max(1, min(_LARGEST_MINIMUM, len(keys) // 5, len(distinct) - 1))
    if len(below) >= fewest:
        return below if len(below) < len(distinct) else frozenset(sorted(distinct)[: len(distinct) // 2])
    return frozenset(sorted(distinct)[:fewest]) if len(distinct) > 1 else frozenset()
