"""Learning-rate schedules: transformers' own as an oracle, and the promises at both ends."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_cosine_with_min_lr_schedule_with_warmup

from galley.engines.schedule import FINAL_SHARE, learning_rate
from galley.plan.types import OptimizerPlan
from galley.recipe.schema import ScheduleName

pytestmark = pytest.mark.unit

SCHEDULES: list[ScheduleName] = ["cosine", "linear", "wsd", "constant"]


def optimizer(schedule: ScheduleName, *, warmup: int = 0, decay: int = 0) -> OptimizerPlan:
    return OptimizerPlan(
        name="adamw",
        learning_rate=2.0,
        weight_decay=0.0,
        betas=(0.9, 0.95),
        clip=1.0,
        schedule=schedule,
        warmup_steps=warmup,
        decay_steps=decay,
    )


def test_cosine_equals_transformers() -> None:
    steps, warmup = 50, 5
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = get_cosine_with_min_lr_schedule_with_warmup(
        reference, num_warmup_steps=warmup, num_training_steps=steps - 1, min_lr_rate=FINAL_SHARE
    )
    for step in range(warmup, steps):
        while scheduler.last_epoch < step:
            reference.step()
            scheduler.step()
        ours = learning_rate(step, steps, optimizer("cosine", warmup=warmup))
        assert ours == pytest.approx(reference.param_groups[0]["lr"], rel=1e-9)


@given(
    schedule=st.sampled_from(SCHEDULES),
    steps=st.integers(1, 300),
    warmup=st.integers(0, 400),
    decay=st.integers(0, 300),
)
def test_every_step_has_a_positive_rate_up_to_the_peak(
    schedule: ScheduleName, steps: int, warmup: int, decay: int
) -> None:
    rates = [learning_rate(s, steps, optimizer(schedule, warmup=warmup, decay=decay)) for s in range(steps)]
    assert all(0 < rate <= 2.0 for rate in rates)
    falling = rates[min(warmup, steps) :]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(falling))


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_last_step_has_the_promised_rate(schedule: ScheduleName) -> None:
    assert learning_rate(5, 6, optimizer(schedule, warmup=1)) == pytest.approx(2.0 * FINAL_SHARE)


def test_wsd_stays_and_then_decays() -> None:
    rates = [learning_rate(s, 10, optimizer("wsd", warmup=2, decay=4)) for s in range(10)]
    assert rates[:7] == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, pytest.approx(1.6)]
    assert rates[-1] == pytest.approx(0.4)
