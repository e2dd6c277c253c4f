"""Policies over continuous actions, around the decision function that is saved: deterministic, or a squashed Gaussian.

Actions are stretched to -1 .. 1 here; `Decision` gives them in the environment's own units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.fused_mlp import WRITTEN_OUT, MlpPass
from galley.models.control.mlp import ACTIVATIONS, uniform

if TYPE_CHECKING:
    from torch import Tensor

    from galley.models.control.decision import Decision
    from galley.models.control.encoder import Encoder

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Bounds of the logarithm of the deviation, as in the authors' code of SAC and in Stable-Baselines3."""
EPSILON = 1e-6
"""Inside the logarithm of the squashing's derivative, which is 0 at the bounds."""
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class DeterministicActor(nn.Module):
    """tanh of the decision's outputs.

    Args:
        decision: of rule `squashed`.
        generator: of the first weights.
    """

    def __init__(self, decision: Decision, generator: torch.Generator) -> None:
        super().__init__()
        self.decision = decision
        uniform(decision, generator)
        self.layers = [layer for layer in decision.body if isinstance(layer, nn.Linear)]

    def forward(self, observations_BD: Tensor) -> Tensor:
        """Actions, [B, A], by autograd."""
        return torch.tanh(self.decision.outputs(observations_BD))


class SquashedActor(nn.Module):
    """tanh of a Gaussian whose mean and deviation depend on the observation; the decision is its mean.

    The decision's last layer is the upper half of `head`: it has no numbers of its own.

    Args:
        decision: of rule `squashed`.
        generator: of the first weights.

    Source: Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905, appendix C.
    """

    def __init__(self, decision: Decision, generator: torch.Generator) -> None:
        super().__init__()
        uniform(decision, generator)
        *hidden, last = [layer for layer in decision.body if isinstance(layer, nn.Linear)]
        self.hidden = nn.ModuleList(hidden)
        self.encoder = decision.encoder
        self.head = nn.Linear(last.in_features, 2 * last.out_features)
        uniform(self.head, generator)
        self.layers = [*hidden, self.head]
        self._last = (last,)  # in a tuple, so that it is no module of its own
        self._act = ACTIVATIONS[decision.spec.network.activation]()
        self.tie()

    def tie(self) -> None:
        """Let the decision's last layer lie in `head` (again, after `head` has been moved to other memory)."""
        last = self._last[0]
        last.weight.data = self.head.weight.data[: last.out_features]
        last.bias.data = self.head.bias.data[: last.out_features]

    def forward(self, observations_BD: Tensor, noise_BA: Tensor) -> tuple[Tensor, Tensor]:
        """Actions drawn with this standard normal noise, [B, A], and their log-probabilities, [B], by autograd."""
        features = self.encoder(observations_BD)
        for layer in self.hidden:
            features = self._act(layer(features))
        return squash(self.head(features), noise_BA)


def squash(outputs_BO: Tensor, noise_BA: Tensor) -> tuple[Tensor, Tensor]:
    """Means and log-deviations, [B, 2A], to actions and their log-probabilities."""
    mean, log_std = outputs_BO.chunk(2, dim=1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    actions = torch.tanh(mean + log_std.exp() * noise_BA)
    gaussian = -0.5 * noise_BA.square() - LOG_SQRT_2PI - log_std
    return actions, (gaussian - torch.log(1.0 + EPSILON - actions.square())).sum(dim=1)


class ActorPass:
    """The layers of an actor, for the updates: written out where they can be, else by autograd.

    Args:
        layers: whose parameters have their `.grad` and do not move any more.
        encoder: before them.
        activation: between them.
        rows: B.
        learned: gradients flow through the first rows alone, so many; 0 for all.
    """

    def __init__(
        self, layers: Sequence[nn.Linear], encoder: Encoder, activation: str, rows: int, learned: int = 0
    ) -> None:
        self._layers, self._encoder, self._act = layers, encoder, ACTIVATIONS[activation]()
        self._learned = learned or rows
        written = encoder.own is None and encoder.layout.is_vector and activation in WRITTEN_OUT
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self._pass = MlpPass(weights, biases, activation, rows, learned) if written else None

    def outputs(self, observations_BD: Tensor) -> Tensor:
        """Of the last layer; valid until the next pass."""
        if self._pass is not None:
            self._pass.inputs.copy_(observations_BD)
            return self._pass.forward()
        with torch.enable_grad():
            features = self._encoder(observations_BD)
            for number, layer in enumerate(self._layers):
                features = layer(self._act(features) if number else features)
            self._graph = features[: self._learned]
        return cast("Tensor", features.detach())

    def learn(self, gradient_BO: Tensor) -> None:
        """Write the weights' gradients, from the gradient of the last outputs, over their `.grad`."""
        if self._pass is not None:
            self._pass.to_weights(gradient_BO)
            return
        for parameter in (*self._encoder.parameters(), *(p for layer in self._layers for p in layer.parameters())):
            cast("Tensor", parameter.grad).zero_()
        self._graph.backward(gradient_BO)


class SquashedPass:
    """Draws actions and leads gradients back, for the updates of a `SquashedActor`.

    Args:
        actor: whose parameters have their `.grad` and do not move any more.
        activation, rows, learned: as for `ActorPass`.
    """

    def __init__(self, actor: SquashedActor, activation: str, rows: int, learned: int = 0) -> None:
        self._layers = ActorPass(actor.layers, actor.encoder, activation, rows, learned)

    def draw(self, observations_BD: Tensor, noise_BA: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, [B, A], and their log-probabilities, [B]."""
        self._raw = self._layers.outputs(observations_BD)
        self._noise = noise_BA
        self._actions, log_prob = squash(self._raw, noise_BA)
        return self._actions, log_prob

    def learn(self, of_actions_BA: Tensor, of_log_prob: Tensor) -> None:
        """Write the weights' gradients over their `.grad`.

        Args:
            of_actions_BA: gradient of the (first, learned) actions that were drawn last.
            of_log_prob: of their log-probabilities, the same for every row, [1].
        """
        size, rows = self._actions.shape[1], len(of_actions_BA)
        actions, raw_log_std, noise = self._actions[:rows], self._raw[:rows, size:], self._noise[:rows]
        squares = actions.square()
        # d log_prob / d action is 2 a / (1 + eps - a^2); d action / d (before tanh) is 1 - a^2
        of_before = (of_actions_BA + (2.0 * of_log_prob) * actions / (1.0 + EPSILON - squares)) * (1.0 - squares)
        of_log_std = of_before * noise * raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp() - of_log_prob
        of_log_std = torch.ops.aten.hardtanh_backward(of_log_std, raw_log_std, LOG_STD_MIN, LOG_STD_MAX)
        self._layers.learn(torch.cat([of_before, of_log_std], dim=1))


class DeterministicPass:
    """Actions and their gradients, for the updates of a `DeterministicActor`; arguments as for `SquashedPass`."""

    def __init__(self, actor: DeterministicActor, activation: str, rows: int) -> None:
        self._layers = ActorPass(actor.layers, actor.decision.encoder, activation, rows)

    def act(self, observations_BD: Tensor) -> Tensor:
        """Actions, [B, A]."""
        self._actions = torch.tanh(self._layers.outputs(observations_BD))
        return self._actions

    def learn(self, of_actions_BA: Tensor) -> None:
        """Write the weights' gradients over their `.grad`."""
        self._layers.learn(of_actions_BA * (1.0 - self._actions.square()))
