"""Critics with batch renormalisation before every linear layer, for learning without target networks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.encoder import Encoder
from galley.models.control.mlp import ACTIVATIONS, uniform

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.models.control.spec import NetworkSpec

MOMENTUM, EPSILON = 0.01, 1e-3
MOST_SCALE, MOST_SHIFT = 3.0, 5.0
"""Bounds of r and d (Ioffe 2017, section 4)."""


@dataclass(frozen=True)
class Statistics:
    """Mean and variance of a batch before one layer, [K, F] each."""

    mean: Tensor
    variance: Tensor


class Renorm(nn.Module):
    """Batch renormalisation of K networks side by side: [K, B, F].

    Args:
        networks: K.
        features: F.
        warmup: updates in which batches are normalised by their own moments alone.

    Source: Ioffe 2017, "Batch Renormalization", https://arxiv.org/abs/1702.03275; constants as in Bhatt et al. 2024.
    """

    def __init__(self, networks: int, features: int, warmup: int) -> None:
        super().__init__()
        self._warmup = warmup
        self.scale = nn.Parameter(torch.ones(networks, 1, features))
        self.bias = nn.Parameter(torch.zeros(networks, 1, features))
        self.register_buffer("mean", torch.zeros(networks, features))
        self.register_buffer("variance", torch.ones(networks, features))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def forward(self, rows_KBF: Tensor) -> Tensor:
        """Normalised by the running moments."""
        return self._apply_moments(rows_KBF, self.get_buffer("mean"), self.get_buffer("variance"))

    def of_batch(self, rows_KBF: Tensor) -> tuple[Tensor, Statistics]:
        """Normalised by the batch's moments, corrected towards the running ones after the warm-up."""
        variance, mean = torch.var_mean(rows_KBF, dim=1)
        statistics = Statistics(mean.detach(), variance.detach())
        if int(self.get_buffer("updates")) > self._warmup:
            running = (self.get_buffer("variance") + EPSILON).sqrt()
            r = ((statistics.variance + EPSILON).sqrt() / running).clamp(1 / MOST_SCALE, MOST_SCALE)
            d = ((statistics.mean - self.get_buffer("mean")) / running).clamp(-MOST_SHIFT, MOST_SHIFT)
            mean, variance = mean - d * variance.sqrt() / r, variance / r.square()
        return self._apply_moments(rows_KBF, mean, variance), statistics

    def _apply_moments(self, rows_KBF: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        normal = (rows_KBF - mean[:, None]) * (variance[:, None] + EPSILON).rsqrt()
        return torch.addcmul(self.bias, normal, self.scale)

    def absorb(self, statistics: Statistics) -> None:
        """Let the running moments follow a batch."""
        self.get_buffer("mean").lerp_(statistics.mean, MOMENTUM)
        self.get_buffer("variance").lerp_(statistics.variance, MOMENTUM)
        self.get_buffer("updates").add_(1)


class RenormCritics(nn.Module):
    """Values of actions: [B, D] and [B, A] to [K, B].

    Args:
        observations, actions: layouts.
        network: hidden layers.
        number: K.
        warmup: see `Renorm`.
        generator: of the first weights.
    """

    def __init__(
        self,
        observations: ObservationLayout,
        actions: ActionLayout,
        network: NetworkSpec,
        *,
        number: int,
        warmup: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(observations, network.source)
        uniform(self.encoder, generator)
        self._act = ACTIVATIONS[network.activation]()
        sizes = (self.encoder.num_features + actions.size, *network.hidden, 1)
        self._number = number
        self.norms = nn.ModuleList(Renorm(number, fan_in, warmup) for fan_in in sizes[:-1])
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in itertools.pairwise(sizes):
            weight, bias = torch.empty(number, fan_out, fan_in), torch.empty(number, 1, fan_out)
            for drawn in (weight, bias):
                nn.init.uniform_(drawn, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))

    def forward(self, observations_BD: Tensor, actions_BA: Tensor) -> Tensor:
        """Values by the running moments, [K, B]."""
        return self._run(observations_BD, actions_BA, None)

    def of_batch(self, observations_BD: Tensor, actions_BA: Tensor) -> tuple[Tensor, list[Statistics]]:
        """Values by the batch's moments, [K, B], and these for `absorb`."""
        found: list[Statistics] = []
        return self._run(observations_BD, actions_BA, found), found

    def _run(self, observations_BD: Tensor, actions_BA: Tensor, found: list[Statistics] | None) -> Tensor:
        inputs = torch.cat([self.encoder(observations_BD), actions_BA], dim=1)
        hidden = inputs.expand(self._number, -1, -1)
        for number, norm in enumerate(self._norms()):
            hidden = self._act(hidden) if number else hidden
            if found is None:
                hidden = norm(hidden)
            else:
                hidden, statistics = norm.of_batch(hidden)
                found.append(statistics)
            hidden = torch.baddbmm(self.biases[number], hidden, self.weights[number].transpose(1, 2))
        return hidden[..., 0]

    def absorb(self, statistics: list[Statistics]) -> None:
        """Let the running moments follow a batch."""
        for norm, found in zip(self._norms(), statistics, strict=True):
            norm.absorb(found)

    def _norms(self) -> list[Renorm]:
        return [cast("Renorm", norm) for norm in self.norms]
