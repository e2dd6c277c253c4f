"""The engine for one device: a CPU, one CUDA card, or Apple's GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader

from galley.engines.base import LossFn, OutOfMemoryError, StepResult
from galley.engines.group import ALONE, Group
from galley.engines.optimizer import MasterOptimizer

if TYPE_CHECKING:
    import torch

    from galley.data.batch import Batch
    from galley.models.base import Model
    from galley.plan.types import Plan
else:
    torch = lazy_loader.load("torch")


class Single:
    """One process, one device, float32 masters, gradients summed over micro-batches and divided once.

    Args:
        group: processes that hold the same model and other micro-batches of each step; sums then go over all of them.
    """

    def __init__(self, group: Group = ALONE) -> None:
        self.group = group

    def setup(self, plan: Plan, model: Model) -> None:
        """Move the model to `plan.device` and make the optimiser."""
        torch.set_num_threads(plan.threads)
        self.device = torch.device(plan.device)
        self.module = model.module
        self.module.to(self.device)
        self.module.train()
        torch.manual_seed(plan.seed + self.group.rank)  # of dropout; weights were drawn from seeds of their own
        self.optimizer = MasterOptimizer(self.module, plan.optimizer)

    def step(self, loss: LossFn, batches: Sequence[Batch], learning_rate: float) -> StepResult:
        """One optimiser step over the micro-batches."""
        if not self.module.training:
            self.module.train()
        sums = self._learn_from(loss, batches)
        sums.over(self.group)
        self.optimizer.sum_over(self.group)
        untrained = self.optimizer.without_gradient()
        if sums.is_finite:
            norm, applied = self.optimizer.finish(sums.denominator, learning_rate)
        else:
            norm, applied = float("nan"), False
            self.optimizer.clear()
        return sums.result(grad_norm=norm, applied=applied, untrained=untrained)

    def _learn_from(self, loss: LossFn, batches: Sequence[Batch]) -> _Sums:
        """Gradients of this process's micro-batches. Where memory runs out in one process, all take the step back."""
        sums, exhausted = _Sums(), None
        random = self._random_state()
        try:
            with self._undo_on_exhaustion():
                for batch in batches:
                    part = loss(batch.to(self.device))
                    part.total.backward()  # type: ignore[no-untyped-call]
                    self.optimizer.collect()
                    sums.add(part.total, part.denominator, part.metrics, batch)
        except OutOfMemoryError as error:
            exhausted = error
        if self.group.any(exhausted is not None):
            self.optimizer.clear()
            self._set_random_state(random)
            raise exhausted or OutOfMemoryError("in another process")
        return sums

    def evaluate(self, loss: LossFn, batches: Sequence[Batch]) -> StepResult:
        """The same sums without gradients and without dropout."""
        self.module.eval()
        sums = _Sums()
        with torch.no_grad():
            for batch in batches:
                part = loss(batch.to(self.device))
                sums.add(part.total, part.denominator, part.metrics, batch)
        sums.over(self.group)
        return sums.result(grad_norm=0.0, applied=False)

    def state(self) -> dict[str, Any]:
        """Trainable weights, buffers, optimiser and random states."""
        state = self.optimizer.state()
        state["buffers"] = dict(self.module.named_buffers())
        state["random"] = self._random_state()
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue bit-identically from `state()`."""
        self.optimizer.load_state(state)
        buffers = dict(self.module.named_buffers())
        for name, saved in state["buffers"].items():
            buffers[name].copy_(saved)
        self._set_random_state(state["random"])

    def is_finite(self) -> bool:
        """Whether all trainable weights are numbers."""
        return all(bool(torch.isfinite(p).all()) for p in self.module.parameters() if p.requires_grad)

    def peak_memory(self) -> int:
        """Peak bytes: resident set of the process on cpu, allocated on an accelerator."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        if self.device.type == "mps":
            return int(torch.mps.driver_allocated_memory())
        return peak_resident_bytes()

    def close(self) -> None:
        """Free the optimiser's memory."""
        self.optimizer.clear()
        del self.optimizer

    def _random_state(self) -> dict[str, torch.Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["device"] = torch.cuda.get_rng_state(self.device)
        return states

    def _set_random_state(self, states: Mapping[str, torch.Tensor]) -> None:
        torch.set_rng_state(states["cpu"].cpu())
        if self.device.type == "cuda" and "device" in states:
            torch.cuda.set_rng_state(states["device"].cpu(), self.device)

    @contextmanager
    def _undo_on_exhaustion(self) -> Iterator[None]:
        """Turn any way of running out of memory into OutOfMemoryError, with no gradient left behind."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            message = str(error)
        else:
            return
        # Outside the handler: the exception's traceback would keep the activations alive.
        self.optimizer.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemoryError(message)


class _Sums:
    """Running sums over the micro-batches of one step."""

    def __init__(self) -> None:
        self.total = 0.0
        self.denominator = 0
        self.num_tokens = 0
        self.num_rows = 0
        self.metrics: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def add(
        self, total: torch.Tensor, denominator: int, metrics: Mapping[str, tuple[float, float]], batch: Batch
    ) -> None:
        self.total += float(total.detach())
        self.denominator += denominator
        self.num_tokens += batch.num_tokens
        self.num_rows += batch.num_rows
        for name, (value, count) in metrics.items():
            before = self.metrics[name]
            self.metrics[name] = (before[0] + value, before[1] + count)

    def over(self, group: Group) -> None:
        """Add what the other processes have."""
        if group.size == 1:
            return
        sums = group.sum([self.total, self.denominator, self.num_tokens, self.num_rows])
        self.total = sums[0]
        self.denominator, self.num_tokens, self.num_rows = (round(number) for number in sums[1:])
        self.metrics = group.sum_named(self.metrics)

    @property
    def is_finite(self) -> bool:
        return abs(self.total) < float("inf")

    def result(self, *, grad_norm: float, applied: bool, untrained: tuple[str, ...] = ()) -> StepResult:
        return StepResult(
            loss=self.total / self.denominator if self.denominator else 0.0,
            denominator=self.denominator,
            grad_norm=grad_norm,
            num_tokens=self.num_tokens,
            num_rows=self.num_rows,
            metrics={name: value / count for name, (value, count) in self.metrics.items() if count},
            applied=applied,
            untrained=untrained,
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that memory ran out, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def peak_resident_bytes() -> int:
    """Highest resident set of this process so far, in bytes.

    Linux is asked for the program's own mark: getrusage counts what the parent had when it started this process.
    """
    import resource
    import sys

    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


ENGINE = Single
