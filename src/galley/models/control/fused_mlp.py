"""Perceptrons side by side, and their forward and backward pass written out, without autograd.

The matrix products of 256-wide layers should take the time of an off-policy update, but nodes of autograd, views and
fresh memory take more than they do. Here every tensor and every view is made once.

Shapes: K networks, B rows, I inputs, O outputs of a layer. One network alone has no axis K.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.mlp import ACTIVATIONS

if TYPE_CHECKING:
    from torch import Tensor

    from galley.models.control.spec import Activation

WRITTEN_OUT = ("relu", "tanh")
"""Activations whose derivative is known from their output."""


class MlpEnsemble(nn.Module):
    """K perceptrons of one shape side by side: [B, I] to [K, B, O].

    Args:
        networks: K, two or more.
        sizes: inputs, hidden units and outputs.
        activation: between layers.
        generator: of the first weights: as PyTorch draws them by default, U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
    """

    def __init__(self, networks: int, sizes: Sequence[int], activation: Activation, generator: torch.Generator) -> None:
        super().__init__()
        self._act = ACTIVATIONS[activation]()
        self.layers = len(sizes) - 1
        for number, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weight, bias = torch.empty(networks, fan_out, fan_in), torch.empty(networks, fan_out)
            for drawn in (weight, bias):
                nn.init.uniform_(drawn, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
            self.register_parameter(f"weight_{number}", nn.Parameter(weight))
            self.register_parameter(f"bias_{number}", nn.Parameter(bias))

    @property
    def weights(self) -> list[nn.Parameter]:
        """Of each layer, [K, O, I]."""
        return [cast("nn.Parameter", self._parameters[f"weight_{number}"]) for number in range(self.layers)]

    @property
    def biases(self) -> list[nn.Parameter]:
        """Of each layer, [K, O]."""
        return [cast("nn.Parameter", self._parameters[f"bias_{number}"]) for number in range(self.layers)]

    def forward(self, inputs_BI: Tensor) -> Tensor:
        """Outputs, [K, B, O], by autograd."""
        hidden = inputs_BI.expand(len(self.weights[0]), -1, -1)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias[:, None], self._act(hidden) if number else hidden, weight.transpose(1, 2))
        return hidden


class MlpPass:
    """Forward and backward pass of a perceptron, or of K, for a fixed number of rows.

    Args:
        weights: of each layer, [O, I] or [K, O, I]; they may change, but not move in memory, and so may their `.grad`.
        biases: of each layer, [O] or [K, O].
        activation: one of `WRITTEN_OUT`.
        rows: B.
        learned: gradients flow through the first rows alone, so many; 0 for all.
    """

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str, rows: int, learned: int = 0
    ) -> None:
        first = weights[0]
        networks = first.shape[:-2]
        learned = learned or rows
        self._product = torch.bmm if networks else torch.mm
        self._relu = activation == "relu"
        self.inputs = first.new_zeros(rows, first.shape[-1])
        """To be filled before `forward`, [B, I]."""
        shared = self.inputs.expand(*networks, -1, -1)
        self._hidden = [shared] + [first.new_zeros(*networks, rows, w.shape[-2]) for w in weights]
        self._kept = [hidden[..., :learned, :] for hidden in self._hidden]
        self._down = [hidden.new_zeros(hidden.shape) for hidden in self._kept[1:-1]]
        self._down_turned = [down.transpose(-1, -2) for down in self._down]
        self._to_inputs = first.new_zeros(*networks, learned, first.shape[-1])
        self._weights = [w.detach() for w in weights]
        self._turned = [w.transpose(-1, -2) for w in self._weights]
        self._biases = [b.detach().unsqueeze(-2) for b in biases]
        self._gradients = [(w.grad, b.grad) for w, b in zip(weights, biases, strict=True)]

    def forward(self) -> Tensor:
        """Outputs, [B, O] or [K, B, O]; valid until the next pass."""
        last = len(self._turned) - 1
        for number, (turned, bias) in enumerate(zip(self._turned, self._biases, strict=True)):
            out = self._hidden[number + 1]
            self._product(self._hidden[number], turned, out=out)
            out.add_(bias)
            if number < last:
                out.relu_() if self._relu else out.tanh_()
        return self._hidden[-1]

    def to_weights(self, gradient: Tensor) -> None:
        """From the gradient of the last pass's outputs, write those of weights and biases over their `.grad`."""
        turned = gradient.transpose(-1, -2)
        for number in range(len(self._weights) - 1, -1, -1):
            of_weight, of_bias = self._gradients[number]
            self._product(turned, self._kept[number], out=of_weight)
            torch.sum(gradient, -2, out=of_bias)
            if number:
                gradient, turned = self._through(gradient, number), self._down_turned[number - 1]

    def to_inputs(self, gradient: Tensor) -> Tensor:
        """From the gradient of the last pass's outputs, that of the inputs, [B, I]; valid until the next pass."""
        for number in range(len(self._weights) - 1, 0, -1):
            gradient = self._through(gradient, number)
        self._product(gradient, self._weights[0], out=self._to_inputs)
        return self._to_inputs if self._to_inputs.dim() == 2 else self._to_inputs.sum(0)

    def _through(self, gradient: Tensor, number: int) -> Tensor:
        """Down through a layer and the activation before it."""
        down, hidden = self._down[number - 1], self._kept[number]
        self._product(gradient, self._weights[number], out=down)
        if self._relu:
            torch.ops.aten.threshold_backward.grad_input(down, hidden, 0, grad_input=down)
        else:
            torch.ops.aten.tanh_backward.grad_input(down, hidden, grad_input=down)
        return down


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Within it, float32 matrix products may be taken in `bfloat16` (inputs rounded, sums in float32).

    A processor with bfloat16 units (AMX) is several times faster so; `float32` changes nothing.
    """
    if precision == "float32":
        yield
        return
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        settings.fp32_precision = before
