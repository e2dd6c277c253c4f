"""Encoded rows, cut to the longest length, with an account of every row and token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.samples import EncodeReport

if TYPE_CHECKING:
    import numpy as np

    from galley.data.cache import TokenStore

    Int64Array = np.ndarray[Any, np.dtype[np.int64]]

_SHOWN_ROWS = 20


class TokenSamples:
    """Encoded rows of a dataset.

    Rows longer than `max_length` lose their end, except documents: these are learned in pieces that share one token,
    so that each token but a document's first is learned exactly once, always from its own document.

    Args:
        store: all tokens of all examples.
        max_length: longest row, in tokens.
        pieces: cut into pieces instead of losing the end.

    Raises:
        GalleyError: `data-empty` when nothing is left to learn, naming rows and setting.
    """

    def __init__(self, store: TokenStore, *, max_length: int, pieces: bool) -> None:
        import numpy as np

        assert max_length >= 2, "a row needs a token to predict another from"
        # Plain views of the mapped files: slices of memmaps cost more than what is in them.
        self._ids, self._mask = np.asarray(store.ids), np.asarray(store.mask)
        full = np.diff(store.offsets)
        parts = np.maximum(1, -(-(full - 1) // (max_length - 1))) if pieces else np.ones_like(full)
        example = np.repeat(np.arange(len(full)), parts)
        number = np.arange(len(example)) - np.repeat(np.cumsum(parts) - parts, parts)
        start = store.offsets[:-1][example] + number * (max_length - 1)
        stop = np.minimum(start + max_length, store.offsets[1:][example])
        targets = _targets(store, start, stop)
        kept = targets > 0
        self.examples: Int64Array = example[kept]
        """The example that each row came from, [R]."""
        self._start, self._stop = start[kept], stop[kept]
        self.report = _report(full, example, start, stop, targets)
        if len(full) and not len(self.examples):
            raise _nothing_left(self.report, full, max_length)

    def __len__(self) -> int:
        return len(self._start)

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each row, [R]."""
        lengths: Int64Array = self._stop - self._start
        return lengths

    def ids(self, row: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Token ids of a row."""
        return self._ids[self._start[row] : self._stop[row]]

    def mask(self, row: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which tokens of a row are learned; never the first, which nothing predicts."""
        mask = self._mask[self._start[row] : self._stop[row]].astype(bool)
        mask[:1] = False
        return mask


def _targets(store: TokenStore, start: Int64Array, stop: Int64Array) -> Int64Array:
    """Learned tokens of each row, its first token not counted."""
    import numpy as np

    counts = np.zeros(len(start), dtype=np.int64)
    rows = np.flatnonzero(stop - start > 1)
    if len(rows):
        # reduceat sums from each index to the next: every other sum is a gap between rows, and the last has no end.
        borders = np.stack([start[rows] + 1, stop[rows]], axis=1).ravel()
        borders = borders[:-1] if borders[-1] == len(store.mask) else borders
        counts[rows] = np.add.reduceat(store.mask, borders, dtype=np.int64)[::2]
    return counts


def _report(
    full: Int64Array, example: Int64Array, start: Int64Array, stop: Int64Array, targets: Int64Array
) -> EncodeReport:
    import numpy as np

    kept = targets > 0
    # Pieces of one document share their border token; it is given again, not kept twice.
    repeated = np.concatenate([[False], example[1:] == example[:-1]])
    covered = np.zeros(len(full), dtype=np.int64)
    np.add.at(covered, example[kept], (stop - start - repeated)[kept])
    whole = np.zeros(len(full), dtype=bool)
    whole[example[kept]] = True
    cut = np.where(whole, full - covered, 0)
    lengths = (0, 0, 0)
    if len(full):
        median, high = np.percentile(full, [50, 95], method="inverted_cdf")
        lengths = (int(median), int(high), int(full.max()))
    return EncodeReport(
        rows_in=len(full),
        rows_kept=int(whole.sum()),
        rows_without_targets=int((~whole).sum()),
        rows_truncated=int((cut > 0).sum()),
        tokens_in=int(full.sum()),
        tokens_cut=int(cut.sum()),
        tokens_dropped=int(full[~whole].sum()),
        tokens_repeated=int((repeated & kept).sum()),
        supervised_tokens=int(targets.sum()),
        lengths=lengths,
        dropped_examples=tuple(np.flatnonzero(~whole)[:_SHOWN_ROWS].tolist()),
    )


def _nothing_left(report: EncodeReport, full: Int64Array, max_length: int) -> GalleyError:
    rows = ", ".join(str(row + 1) for row in report.dropped_examples[:5])
    more = ", ..." if report.rows_in > 5 else ""
    long = int((full > max_length).sum())
    why = f"{long} of them are longer than max_length = {max_length} tokens" if long else "none has an answer to learn"
    hint = f"raise override.max_length (the longest row has {report.lengths[2]} tokens)" if long else ""
    return GalleyError(
        "data-empty",
        f"nothing is left to learn in any of {report.rows_in} rows (rows {rows}{more}): {why}",
        hint=hint or "give every row an assistant turn or a completion that is trained on",
    )
