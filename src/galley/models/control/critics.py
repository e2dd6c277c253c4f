"""Critics of continuous actions: several of one shape side by side, over the features of one encoder."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn

from galley.models.control.encoder import Encoder
from galley.models.control.fused_mlp import WRITTEN_OUT, MlpEnsemble, MlpPass
from galley.models.control.mlp import uniform

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.models.control.spec import NetworkSpec


class Critics(nn.Module):
    """Values of actions: [B, D] and [B, A] to [K, B, Q].

    Args:
        observations, actions: layouts.
        network: hidden layers.
        number: K, of critics.
        outputs: Q of each, such as quantiles.
        generator: of the first weights.
    """

    def __init__(
        self,
        observations: ObservationLayout,
        actions: ActionLayout,
        network: NetworkSpec,
        *,
        number: int,
        outputs: int = 1,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(observations, network.source)
        uniform(self.encoder, generator)
        sizes = (self.encoder.num_features + actions.size, *network.hidden, outputs)
        self.nets = MlpEnsemble(number, sizes, network.activation, generator)
        self.activation = network.activation

    def forward(self, observations_BD: Tensor, actions_BA: Tensor) -> Tensor:
        """Values, [K, B, Q], of actions stretched to -1 .. 1, by autograd."""
        return cast("Tensor", self.nets(torch.cat([self.encoder(observations_BD), actions_BA], dim=1)))


class CriticPass(Protocol):
    """Values and their gradients, for the updates."""

    def values(self, observations_BD: Tensor, actions_BA: Tensor) -> Tensor:
        """[K, B, Q]; valid until the next pass."""

    def learn(self, gradient_KBQ: Tensor) -> None:
        """Write the weights' gradients, from the gradient of the last values, over their `.grad`."""

    def to_actions(self, gradient_KBQ: Tensor) -> Tensor:
        """Gradient of the last actions, [B, A], from the one of their values."""


def critic_pass(critics: Critics, rows: int) -> CriticPass:
    """Written out where the observation is a vector and the activation allows it, else by autograd.

    Args:
        critics: whose parameters have their `.grad` and do not move any more.
        rows: B.
    """
    if critics.encoder.own is None and critics.encoder.layout.is_vector and critics.activation in WRITTEN_OUT:
        return _WrittenOut(critics, rows)
    return _ByAutograd(critics)


class _WrittenOut:
    def __init__(self, critics: Critics, rows: int) -> None:
        nets = critics.nets
        self._pass = MlpPass(nets.weights, nets.biases, critics.activation, rows)
        size = critics.encoder.num_features
        self._observations, self._actions = self._pass.inputs[:, :size], self._pass.inputs[:, size:]
        self._size = size

    def values(self, observations_BD: Tensor, actions_BA: Tensor) -> Tensor:
        self._observations.copy_(observations_BD)
        self._actions.copy_(actions_BA)
        return self._pass.forward()

    def learn(self, gradient_KBQ: Tensor) -> None:
        self._pass.to_weights(gradient_KBQ)

    def to_actions(self, gradient_KBQ: Tensor) -> Tensor:
        return self._pass.to_inputs(gradient_KBQ)[:, self._size :]


class _ByAutograd:
    def __init__(self, critics: Critics) -> None:
        self._critics = critics
        self._trains = any(p.requires_grad for p in critics.parameters())

    def values(self, observations_BD: Tensor, actions_BA: Tensor) -> Tensor:
        with torch.enable_grad():
            self._actions = actions_BA.detach().requires_grad_(self._trains)
            self._values = self._critics(observations_BD, self._actions)
        return self._values.detach()  # type: ignore[no-any-return]

    def learn(self, gradient_KBQ: Tensor) -> None:
        for parameter in self._critics.parameters():
            cast("Tensor", parameter.grad).zero_()
        self._values.backward(gradient_KBQ)

    def to_actions(self, gradient_KBQ: Tensor) -> Tensor:
        return torch.autograd.grad(self._values, self._actions, gradient_KBQ)[0]


def twin_of(module: Critics) -> Critics:
    """A copy that no gradient reaches: target critics."""
    return copy.deepcopy(module).requires_grad_(False)
