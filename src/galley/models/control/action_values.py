"""Values of observations and of actions, for methods that learn from stored episodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.encoder import Encoder
from galley.models.control.fused_mlp import MlpEnsemble
from galley.models.control.mlp import Mlp

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.models.control.spec import NetworkSpec


class StateValue(nn.Module):
    """What is expected from an observation on: [B, D] to [B].

    Args:
        observations: layout.
        network: hidden layers.
    """

    def __init__(self, observations: ObservationLayout, network: NetworkSpec) -> None:
        super().__init__()
        self.encoder = Encoder(observations, network.source)
        self.body = Mlp((self.encoder.num_features, *network.hidden, 1), network.activation)

    def forward(self, observations_BD: Tensor) -> Tensor:
        """Values, [B]."""
        return cast("Tensor", self.body(self.encoder(observations_BD))[:, 0])


class ActionValues(nn.Module):
    """What is expected from an observation and an action on, by K critics.

    Args:
        observations, actions: layouts; actions are one choice (an output for each) or a box (an input).
        network: hidden layers.
        critics: K.
        generator: of the first weights.
    """

    def __init__(
        self,
        observations: ObservationLayout,
        actions: ActionLayout,
        network: NetworkSpec,
        *,
        critics: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(observations, network.source)
        self.box = actions.kind == "box"
        inputs, outputs = (actions.size, 1) if self.box else (0, actions.num_choices)
        sizes = (self.encoder.num_features + inputs, *network.hidden, outputs)
        self.nets = MlpEnsemble(critics, sizes, network.activation, generator)
        low, high = torch.tensor(actions.low), torch.tensor(actions.high)
        bounded = self.box and all(math.isfinite(x) for x in (*actions.low, *actions.high))
        self.register_buffer("middle", (low + high) / 2 if bounded else torch.zeros_like(low))
        self.register_buffer("reach", (high - low) / 2 if bounded else torch.ones_like(low))

    def unit(self, actions_BA: Tensor) -> Tensor:
        """Actions of a bounded box stretched to -1 .. 1; others as they are."""
        return (actions_BA - self.get_buffer("middle")) / self.get_buffer("reach")

    def of_choices(self, observations_BD: Tensor) -> Tensor:
        """Of every choice, [K, B, C]."""
        return cast("Tensor", self.nets(self.encoder(observations_BD)))

    def of(self, observations_BD: Tensor, actions: Tensor) -> Tensor:
        """Of the actions [B] or [B, A] that were taken, [K, B]."""
        if self.box:
            inputs = torch.cat([self.encoder(observations_BD), self.unit(actions)], dim=1)
            return cast("Tensor", self.nets(inputs)[:, :, 0])
        values_KBC = self.of_choices(observations_BD)
        chosen = actions.expand(len(values_KBC), -1)[:, :, None]
        return values_KBC.gather(2, chosen)[:, :, 0]
