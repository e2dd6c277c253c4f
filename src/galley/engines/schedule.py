"""The learning rate as a pure function of the step, so that resuming needs no scheduler state."""

from __future__ import annotations

import math

from galley.plan.types import OptimizerPlan

FINAL_SHARE = 0.1
"""A cosine or linear schedule ends at this share of the peak."""


def learning_rate(step: int, steps: int, plan: OptimizerPlan) -> float:
    """Learning rate of optimiser step `step`, counted from 0, of `steps` planned ones.

    Warm-up is linear and its first step is already above zero. `cosine` and `linear` fall from the peak to a tenth of
    it, reached at the last step; `wsd` (warm-up, stable, decay: MiniCPM, arXiv 2404.06395) stays at the peak and then
    falls linearly to zero just after the last step; `constant` stays.

    Example:
        >>> plan = OptimizerPlan(name="adamw", learning_rate=1.0, weight_decay=0, betas=(0.9, 0.95), clip=1,
        ...                      schedule="linear", warmup_steps=2, decay_steps=0)
        >>> [round(learning_rate(s, 6, plan), 3) for s in range(6)]
        [0.5, 1.0, 1.0, 0.7, 0.4, 0.1]
    """
    peak = plan.learning_rate
    warmup = min(plan.warmup_steps, steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    if plan.schedule == "constant":
        return peak
    if plan.schedule == "wsd":
        left = steps - step
        return peak * min(1.0, left / (plan.decay_steps + 1))
    span = max(1, steps - 1 - warmup)
    progress = min(1.0, (step - warmup) / span)
    shape = 1.0 - progress if plan.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak * (FINAL_SHARE + (1.0 - FINAL_SHARE) * shape)
