"""What methods share that learn from stored episodes: rows as tensors, minibatches, one optimiser for each loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from galley.methods.control.flat_adam import FlatAdam, FlatParameters
from galley.models.control.moments import Normaliser

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.episodes import StoredEpisodes
    from galley.methods.base import Loss
    from galley.methods.control.base import World
    from galley.models.control.decision import Decision

UPDATES = 100
"""Of one round; between two lines of metrics there is at least one."""
Made = TypeVar("Made")
Module = TypeVar("Module", bound=nn.Module)


def stored(world: World) -> StoredEpisodes:
    """The episodes that offline methods are always given."""
    assert world.episodes is not None
    return world.episodes


def seeded(seed: int, make: Callable[[], Made]) -> Made:
    """What `make` gives when layers draw their first weights from this seed; the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def frozen_copy(module: Module) -> Module:
    """A copy that no gradient reaches: a target network."""
    return copy.deepcopy(module).requires_grad_(False)


def rows_of(episodes: StoredEpisodes, *, gamma: float, reward_scale: float, device: str) -> dict[str, Tensor]:
    """Every transition, by column.

    Args:
        episodes: stored ones.
        gamma: discount.
        reward_scale: rewards are multiplied with it.
        device: torch device.

    Returns:
        observations [T, D], actions [T] or [T, A], rewards [T], successors [T, D] and discounts [T]: gamma, and 0 where
        the episode terminated. A truncated row keeps its discount: its successor's value stands for what was cut off.
    """
    columns = {
        "observations": episodes.observations,
        "actions": episodes.actions,
        "rewards": episodes.rewards * np.float32(reward_scale),
        "successors": episodes.successors,
        "discounts": np.where(episodes.terminated, 0.0, gamma).astype(np.float32),
    }
    return {name: torch.as_tensor(column, device=device) for name, column in columns.items()}


def normalise_by(decision: Decision, episodes: StoredEpisodes) -> None:
    """Let a decision shift and scale observations by the mean and deviation of the stored ones, if it normalises."""
    if decision.spec.normalise:
        normaliser = Normaliser(decision.spec.observations.size, decision.spec.clip)
        normaliser.moments.update(episodes.observations)
        decision.take_moments(normaliser)


class Minibatches:
    """Rows drawn uniformly, with replacement.

    Args:
        rows: columns of T rows each.
        batch_size: rows of a minibatch.
        seed: of the draws.
    """

    def __init__(self, rows: Mapping[str, Tensor], batch_size: int, seed: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self) -> dict[str, Tensor]:
        """One minibatch."""
        first = next(iter(self._rows.values()))
        chosen = torch.randint(len(first), (self._batch_size,), generator=self._generator).to(first.device)
        return {name: column[chosen] for name, column in self._rows.items()}

    def state(self) -> dict[str, Any]:
        """Of the generator."""
        return {"generator": self._generator.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._generator.set_state(state["generator"])


class Descent:
    """Adam on one loss, and the means of what it did.

    Args:
        parameters: that the loss trains.
        learning_rate: of Adam.
        weight_decay: decoupled, as in AdamW.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float = 0.0) -> None:
        self.learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._flat = FlatParameters(parameters)
        self._adam = FlatAdam(self._flat)
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def update(self, loss: Loss, factor: float = 1.0) -> None:
        """One step down the mean of a loss, with a learning rate of `factor` times the usual one."""
        mean = loss.total / loss.denominator
        self._flat.gradient.zero_()
        mean.backward()  # type: ignore[no-untyped-call]
        rate = self.learning_rate * factor
        if self._weight_decay:
            self._flat.data.mul_(1 - rate * self._weight_decay)
        self._adam.step(rate)
        self._add("loss", mean.detach())
        self._add("grad_norm", torch.linalg.vector_norm(self._flat.gradient))
        for name, (total, count) in loss.metrics.items():
            self._add(name, torch.as_tensor(total / count).detach())
        self._count += 1

    def _add(self, name: str, value: Tensor) -> None:
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def means(self) -> dict[str, float]:
        """Of loss, gradient norm and metrics since the last call."""
        found = {name: float(total) / self._count for name, total in self._sums.items()}
        self._sums, self._count = {}, 0
        return found

    def state(self) -> dict[str, Any]:
        """Moments and count of steps."""
        return self._adam.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._adam.load_state(state)


def weights_state(modules: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Copies of parameters and buffers."""
    return {
        name: {key: value.detach().clone() for key, value in module.state_dict().items()}
        for name, module in modules.items()
    }


def load_weights(modules: Mapping[str, nn.Module], state: Mapping[str, Any]) -> None:
    """Put `weights_state` back."""
    for name, module in modules.items():
        module.load_state_dict(state[name])


def reward_scale(episodes: StoredEpisodes) -> float:
    """1000 over the range of the stored returns, so that values have a size that suits usual settings; 1 without range.

    Source: the code of Kostrikov et al. 2022 (locomotion).
    """
    returns = episodes.returns
    spread = float(returns.max() - returns.min())
    return 1000.0 / spread if spread > 0 else 1.0
