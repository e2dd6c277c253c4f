"""Rows that are ready to batch: numbered, with a length each, and an account of what was cut or dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class EncodeReport:
    """Where every row and token went.

    Rows here are examples: rows_in = rows_kept + rows_without_targets. Tokens: the lengths of all samples add up to
    tokens_in - tokens_cut - tokens_dropped + tokens_repeated.
    """

    rows_in: int
    rows_kept: int
    rows_without_targets: int
    """Dropped: nothing supervised was left, for example because the prompt alone fills the limit."""
    rows_truncated: int
    tokens_in: int
    tokens_cut: int
    """Tokens cut from kept rows."""
    tokens_dropped: int
    """Tokens of dropped rows."""
    tokens_repeated: int = field(default=0, kw_only=True)
    """Tokens given again as context, where a long document is learned in several pieces."""
    supervised_tokens: int
    lengths: tuple[int, int, int] = (0, 0, 0)
    """Median, 95th percentile and longest row before truncation, in tokens."""
    row_shape: tuple[int, ...] = ()
    """Shape of each row, for arrays."""
    dropped_examples: tuple[int, ...] = ()
    """Numbers of the first dropped rows (at most 20), for messages."""


class Samples(Protocol):
    """Encoded rows. Lengths are tokens for text and 1 for rows without tokens."""

    report: EncodeReport

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Length of each row, [R]."""

    def __len__(self) -> int: ...
