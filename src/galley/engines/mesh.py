"""The engine for several processes: every one holds the model and computes its part of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from galley.engines.base import LossFn, StepResult
from galley.engines.group import join, leave
from galley.engines.single import Single

if TYPE_CHECKING:
    from galley.data.batch import Batch
    from galley.models.base import Model
    from galley.plan.types import Plan


class Mesh:
    """Data parallel: micro-batches are divided over the processes; losses, denominators and gradients are summed.

    The update equals that of one process with all micro-batches, up to the order of float additions; sums instead of
    means keep it exact for unequal parts.

    Source: Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 3.
    """

    def __init__(self) -> None:
        self.group = join()
        self._inner = Single(self.group)

    def setup(self, plan: Plan, model: Model) -> None:
        """Place the model on this process's device."""
        self._inner.setup(plan, model)

    def step(self, loss: LossFn, batches: Sequence[Batch], learning_rate: float) -> StepResult:
        """One optimiser step over the micro-batches of all processes; every process gives its own."""
        return self._inner.step(loss, batches, learning_rate)

    def evaluate(self, loss: LossFn, batches: Sequence[Batch]) -> StepResult:
        """Sums over the processes, without gradients."""
        return self._inner.evaluate(loss, batches)

    def state(self) -> dict[str, Any]:
        """As of one process: all hold the same weights and moments."""
        return self._inner.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of any number of processes."""
        self._inner.load_state(state)

    def is_finite(self) -> bool:
        """Whether all trainable weights are numbers, in every process."""
        return not self.group.any(not self._inner.is_finite())

    def peak_memory(self) -> int:
        """Of this process."""
        return self._inner.peak_memory()

    def close(self) -> None:
        """Free memory and leave the group."""
        self._inner.close()
        leave()


ENGINE = Mesh
