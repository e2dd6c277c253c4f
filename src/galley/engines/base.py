"""The seam between the loop and the devices: place a model, take optimiser steps. Engines know no losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from galley.data.batch import Batch
    from galley.methods.base import Loss
    from galley.models.base import Model
    from galley.plan.types import Plan

LossFn: TypeAlias = "Callable[[Any], Loss]"
"""A method's loss bound to its model; the batch is of the kind that the same method made."""


class OutOfMemoryError(Exception):
    """The micro-batch does not fit; nothing of the step was applied. The loop retries it in smaller pieces."""


@dataclass(frozen=True)
class StepResult:
    """One optimiser step, combined over micro-batches and ranks.

    Args:
        loss: sum of losses / sum of denominators.
        denominator: units learned from.
        grad_norm: L2 norm of the gradient before clipping.
        num_tokens: real tokens computed.
        num_rows: dataset rows consumed.
        metrics: method metrics as means.
        applied: False when the update was withheld because loss or gradient was not finite.
        untrained: trainable tensors that got no gradient in this step.
    """

    loss: float
    denominator: int
    grad_norm: float
    num_tokens: int
    num_rows: int
    metrics: Mapping[str, float]
    applied: bool = True
    untrained: tuple[str, ...] = ()


class Engine(Protocol):
    """One way to place and step a model. An engine file defines `ENGINE = TheClass`."""

    def setup(self, plan: Plan, model: Model) -> None:
        """Move the model to its devices and make the optimiser over its trainable parameters."""

    def step(self, loss: LossFn, batches: Sequence[Batch], learning_rate: float) -> StepResult:
        """One optimiser step: gradients of all micro-batches, divided once by the summed denominators.

        Raises:
            OutOfMemoryError: and leaves weights, optimiser and random state as before the step.
        """

    def evaluate(self, loss: LossFn, batches: Sequence[Batch]) -> StepResult:
        """The same sum over denominators, without gradients; dropout off."""

    def state(self) -> dict[str, Any]:
        """Trainable weights, optimiser and random states: tensors by name in nested dicts, plain values else."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue bit-identically from `state()`."""

    def is_finite(self) -> bool:
        """Whether all trainable weights are numbers."""

    def peak_memory(self) -> int:
        """Highest memory since setup, in bytes: resident set on cpu, allocated on an accelerator."""

    def close(self) -> None:
        """Release devices and processes."""
