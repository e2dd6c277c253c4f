"""Which rows each optimiser step takes: a pure function of the step, so that resuming needs no cursor."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def steps_per_epoch(num_rows: int, global_batch: int) -> int:
    """Optimiser steps of one epoch; the last one takes the rows that are left.

    Args:
        num_rows: rows that are trained on.
        global_batch: rows of a step, over all micro-batches and ranks.
    """
    assert min(num_rows, global_batch) >= 1, "a step has rows"
    return -(-num_rows // global_batch)


def total_steps(num_rows: int, global_batch: int, epochs: float) -> int:
    """Optimiser steps of so many epochs; a started step is a step.

    Args:
        num_rows: rows that are trained on.
        global_batch: rows of a step.
        epochs: passes over the rows, more than 0.
    """
    # Rounding of products such as 0.1 x 30 must not start another step.
    return max(1, math.ceil(round(epochs * steps_per_epoch(num_rows, global_batch), 6)))


def step_rows(step: int, *, num_rows: int, global_batch: int, seed: int) -> list[int]:
    """The rows of an optimiser step. Every epoch takes every row once, in an order of its own.

    Args:
        step: number of the step, from 0 over all epochs.
        num_rows: rows that are trained on.
        global_batch: rows of a step.
        seed: seed of the recipe.
    """
    epoch, within = divmod(step, steps_per_epoch(num_rows, global_batch))
    first = within * global_batch
    rows: list[int] = _epoch_order(num_rows, seed, epoch)[first : first + global_batch].tolist()
    return rows


@lru_cache(maxsize=2)
def _epoch_order(num_rows: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    import numpy as np

    # numpy promises the raw bits of Philox for ever, but not its shuffles: an order must survive an upgrade.
    bits = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    return np.argsort(np.atleast_1d(bits.random_raw(num_rows)), kind="stable")
