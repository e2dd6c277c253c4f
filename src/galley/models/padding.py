"""Documents of unequal length in groups that need little padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PADDING_SHARE = 0.25
"""Padding that a group may have, as a share of its tokens."""


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
