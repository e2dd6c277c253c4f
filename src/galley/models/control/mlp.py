"""Multi-layer perceptrons, alone or several of one shape side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from galley.models.control.spec import Activation

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "leaky-relu": nn.LeakyReLU,
}


class Mlp(nn.Sequential):
    """Linear layers with an activation between them; none after the last.

    Args:
        sizes: inputs, hidden units and outputs, e.g. (4, 64, 64, 2).
        activation: between layers.
    """

    def __init__(self, sizes: Sequence[int], activation: Activation) -> None:
        layers: list[nn.Module] = []
        for number, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            if number:
                layers.append(ACTIVATIONS[activation]())
            layers.append(nn.Linear(fan_in, fan_out))
        super().__init__(*layers)


def orthogonal(module: nn.Module, gain: float, generator: torch.Generator) -> None:
    """Set the weights of every linear layer to an orthogonal matrix times the gain, and biases to zero.

    Source: Saxe et al. 2014, https://arxiv.org/abs/1312.6120; with gain sqrt(2) in hidden layers usual for PPO.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(part.weight, gain, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def uniform(module: nn.Module, generator: torch.Generator) -> None:
    """Set weights and biases of every layer as PyTorch does by default, from a generator: U(-1/sqrt(fan_in), +...)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            bound = part.weight[0].numel() ** -0.5
            nn.init.uniform_(part.weight, -bound, bound, generator=generator)
            if part.bias is not None:
                nn.init.uniform_(part.bias, -bound, bound, generator=generator)


def flat_copy(source: nn.Module, target: nn.Module, weight: float = 1.0) -> None:
    """Move the target's parameters a share of the way to the source's (Polyak averaging); 1 copies."""
    with torch.no_grad():
        pairs: list[tuple[Tensor, Tensor]] = list(zip(target.parameters(), source.parameters(), strict=True))
        torch._foreach_lerp_([a for a, _ in pairs], [b for _, b in pairs], weight)
