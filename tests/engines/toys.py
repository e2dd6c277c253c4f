"""A tiny regression that engines can be tested on: a batch, a model and a loss without any of Galley's methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from galley.methods.base import Loss
from galley.models.spec import ModelSpec
from galley.plan.types import BatchPlan, Hardware, OptimizerPlan, Plan, Predicted


@dataclass(frozen=True)
class Rows:
    """Inputs and targets of some rows."""

    x_BI: Tensor
    y_BO: Tensor

    @property
    def num_tokens(self) -> int:
        return self.num_rows

    @property
    def num_rows(self) -> int:
        return int(self.x_BI.shape[0])

    def to(self, device: torch.device) -> Self:
        return type(self)(self.x_BI.to(device), self.y_BO.to(device))


@dataclass
class Toy:
    """What an engine takes as a model."""

    module: nn.Module
    spec: ModelSpec = field(default_factory=lambda: ModelSpec("toy", "module", "toy"))
    tokenizer: Any = None

    def release(self) -> None:
        """Nothing to give back."""

    def loss(self, batch: Rows) -> Loss:
        """Squared error, summed over rows."""
        error = (self.module(batch.x_BI).float() - batch.y_BO) ** 2
        return Loss(error.sum(), batch.num_rows, {"error": (float(error.detach().sum()), batch.num_rows)})


def network(*, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Two layers with seeded weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3)).to(dtype)


def rows(count: int, *, seed: int = 1, dtype: torch.dtype = torch.float32) -> Rows:
    """Random rows of a linear relation."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator)
    return Rows(x.to(dtype), x[:, :3] * 2 - x[:, 2:])


def pieces(batch: Rows, sizes: list[int]) -> list[Rows]:
    """The batch cut into micro-batches of these sizes."""
    return [Rows(x, y) for x, y in zip(torch.split(batch.x_BI, sizes), torch.split(batch.y_BO, sizes), strict=True)]


def plan(**optimizer: Any) -> Plan:
    """A plan for one CPU thread; keyword arguments go to the optimiser."""
    defaults: dict[str, Any] = {
        "name": "adamw",
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "betas": (0.9, 0.95),
        "clip": 0.0,
        "schedule": "constant",
        "warmup_steps": 0,
        "decay_steps": 0,
    }
    return Plan(
        task="chat",
        method="sft",
        model="toy",
        hardware=Hardware(name="test", device="cpu", memory_bytes=2**30),
        device="cpu",
        threads=1,
        tuning="full",
        adapter=None,
        precision="fp32",
        batch=BatchPlan(global_batch_rows=8, micro_batch_rows=8, micro_batch_tokens=64, max_length_tokens=16),
        optimizer=OptimizerPlan(**{**defaults, **optimizer}),
        rows=64,
        epochs=1,
        steps=8,
        evaluate_every=4,
        checkpoint_every=0,
        seed=0,
        exact=True,
        tokens=64,
        decisions=(),
        predicted=Predicted(),
    )
