"""A module with its optimiser, and a target that follows it: both flat, so that each update is one operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import nn

from galley.methods.control.flat_adam import FlatAdam, FlatParameters

if TYPE_CHECKING:
    from torch import Tensor

Module = TypeVar("Module", bound=nn.Module)


class Trained:
    """Parameters that Adam moves.

    Args:
        module: all of its parameters are trained.
        learning_rate: of every step.
        betas: of Adam.
    """

    def __init__(self, module: nn.Module, learning_rate: float, *, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.flat = FlatParameters(module.parameters())
        self.adam = FlatAdam(self.flat, betas=betas)
        self.learning_rate = learning_rate

    def step(self) -> None:
        """One update along `flat.gradient`."""
        self.adam.step(self.learning_rate)

    def grad_norm(self) -> Tensor:
        """L2 norm of `flat.gradient`, a scalar."""
        norm: Tensor = torch.linalg.vector_norm(self.flat.gradient)
        return norm

    def state(self) -> dict[str, Any]:
        """Weights and moments."""
        return {"weights": self.flat.data.clone(), "adam": self.adam.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.flat.data.copy_(state["weights"])
        self.adam.load_state(state["adam"])


class Target(Generic[Module]):
    """A copy that moves towards its source: Polyak averaging.

    Args:
        module: the copy; equal to the source.
        source: what it follows.
    """

    def __init__(self, module: Module, source: Trained) -> None:
        self.module = module
        self._flat = FlatParameters(module.parameters())
        self._source = source

    def follow(self, share: float) -> None:
        """Go this share of the way to the source, tau."""
        self._flat.data.lerp_(self._source.flat.data, share)

    def state(self) -> Tensor:
        """Its weights."""
        return self._flat.data.clone()

    def load_state(self, state: Tensor) -> None:
        """Put `state` back."""
        self._flat.data.copy_(state)


class Means:
    """Means of several numbers over some updates, read from the device once at the end.

    Args:
        names: in the order in which `add` gets them.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, *values: Tensor) -> None:
        """One update's numbers, scalars."""
        row = torch.stack([value.detach().reshape(()) for value in values])
        self._sum = row if self._sum is None else self._sum.add_(row)
        self._count += 1

    def read(self) -> dict[str, float]:
        """By name; empty when nothing was added."""
        if self._sum is None:
            return {}
        return dict(zip(self._names, (self._sum / self._count).tolist(), strict=True))
