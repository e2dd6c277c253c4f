"""The order of rows is a pure function of the step: planned steps are executed, and resuming needs no cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.data.order import step_rows, steps_per_epoch, total_steps

pytestmark = pytest.mark.unit

GOLDEN = [[0, 2, 1], [5, 4, 3], [6], [5, 3, 2], [4, 1, 0], [6]]


@given(num_rows=st.integers(1, 60), global_batch=st.integers(1, 70), seed=st.integers(0, 2**63))
def test_every_epoch_takes_every_row_once(num_rows: int, global_batch: int, seed: int) -> None:
    steps = steps_per_epoch(num_rows, global_batch)
    orders = []
    for epoch in range(3):
        batches = [
            step_rows(epoch * steps + step, num_rows=num_rows, global_batch=global_batch, seed=seed)
            for step in range(steps)
        ]
        assert [len(batch) for batch in batches[:-1]] == [global_batch] * (steps - 1)
        assert batches[-1]
        order = [row for batch in batches for row in batch]
        assert sorted(order) == list(range(num_rows))
        orders.append(tuple(order))
    if num_rows > 20:
        assert len(set(orders)) == 3, "each epoch has an order of its own"


def test_the_order_depends_on_nothing_but_its_arguments() -> None:
    arguments = {"num_rows": 50, "global_batch": 8, "seed": 3}
    forward = [step_rows(step, **arguments) for step in range(30)]
    step_rows(0, num_rows=9, global_batch=2, seed=1)
    assert [step_rows(step, **arguments) for step in reversed(range(30))] == forward[::-1]
    assert step_rows(0, num_rows=50, global_batch=8, seed=4) != forward[0]


def test_the_order_never_changes_between_versions() -> None:
    """A run that was begun with an older release must resume in the same order."""
    assert [step_rows(step, num_rows=7, global_batch=3, seed=0) for step in range(6)] == GOLDEN


def test_left_over_rows_are_a_step() -> None:
    """7 batches, 3 accumulated, 2 epochs are 6 steps (item 3)."""
    assert total_steps(7, 3, 2) == 6
    assert [len(step_rows(step, num_rows=7, global_batch=3, seed=0)) for step in range(6)] == [3, 3, 1, 3, 3, 1]


@pytest.mark.parametrize(("epochs", "steps"), [(1, 30), (0.1, 3), (0.01, 1), (1.5, 45), (1 / 3, 10), (2.01, 61)])
def test_parts_of_epochs(epochs: float, steps: int) -> None:
    assert total_steps(240, 8, epochs) == steps
