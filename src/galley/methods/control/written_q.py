"""The gradient of a Q-network's loss written out by hand, for perceptrons on plain numbers and without autograd.

What is saved is everything around the matrix products: nodes, temporary tensors, and targets one minibatch at a time.
`Dqn`'s `loss`, with autograd, is the truth: tests compare gradients.

Shapes: G minibatches, B rows, D numbers of an observation, C choices, Q values of each (1, or quantiles), O = C x Q.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from galley.methods.control.flat_adam import FlatParameters
    from galley.models.control.decision import Decision

    Array = np.ndarray[Any, Any]
    Layers = list[tuple[Tensor, Tensor]]

_ROWS = 512
"""Of one pass through the target network: few enough for hidden layers to stay in the cache."""


def can_be_written_out(decision: Decision) -> bool:
    """Whether this file knows the network: plain numbers in, ReLU or tanh, no dueling streams."""
    spec = decision.spec
    plain = spec.observations.is_vector and not spec.network.source
    return plain and not spec.dueling and spec.network.activation in ("relu", "tanh")


class WrittenQ:
    """Forward and backward pass of an online network, and the forward pass of its target.

    Args:
        decision: the online network; see `can_be_written_out`.
        target: of the same shape.
        flat: the online network's parameters, on the CPU.
        batch_size: B.
        double: the online network chooses the successor's action, the target network values it.
    """

    def __init__(
        self, decision: Decision, target: Decision, flat: FlatParameters, batch_size: int, *, double: bool
    ) -> None:
        spec = decision.spec
        self._relu, self._double = spec.network.activation == "relu", double
        self._choices, self._quantiles = spec.actions.num_choices, spec.quantiles
        self._online, self._target = _layers(decision), _layers(target)
        linears = [layer for layer in decision.body if isinstance(layer, nn.Linear)]
        self._gradients = [(_grad(layer.weight), _grad(layer.bias)) for layer in linears]
        widths = [len(bias) for _, bias in self._online]
        self._forward_room = [torch.empty(batch_size, width) for width in widths]
        self._back_room = [torch.empty(batch_size, width) for width in widths[:-1]]
        self._target_room = [torch.empty(max(_ROWS, batch_size), width) for width in widths[:-1]]
        self._d_outputs = torch.empty(batch_size, self._choices, self._quantiles)
        self._acting = [(weight.numpy().T, bias.numpy()) for weight, bias in self._online]
        fractions = (torch.arange(self._quantiles) + 0.5) / self._quantiles
        self._fractions_11Q = fractions[None, None]

    def outputs(self, seen_ND: Array) -> Array:
        """Outputs of the online network for a few rows, [N, O]."""
        x = seen_ND
        for number, (weight, bias) in enumerate(self._acting):
            x = x @ weight
            x += bias
            if number < len(self._acting) - 1:
                x = np.maximum(x, np.float32(0), out=x) if self._relu else np.tanh(x, out=x)
        return x

    @torch.no_grad()
    def target_outputs(self, successors: Tensor) -> Tensor:
        """Outputs of the target network, [G, B, C, Q] of [G, B, D]; they hold for all updates until it moves."""
        rows = successors.reshape(-1, successors.shape[-1])
        out = torch.empty(len(rows), self._choices * self._quantiles)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            room = [hidden[: len(part)] for hidden in self._target_room]
            self._forward(self._target, part, [*room, out[start : start + len(part)]])
        return out.reshape(*successors.shape[:-1], self._choices, self._quantiles)

    @torch.no_grad()
    def targets(self, batch: Mapping[str, Tensor], valued: Tensor) -> Tensor:
        """What the chosen values should be, [..., Q].

        Args:
            batch: one minibatch when `double`, since the online network moves with each; else any number at once.
            valued: `target_outputs` of its successors.
        """
        judged = valued
        if self._double:
            # Rooms are free: the gradient's forward pass comes after.
            judged = self._forward(self._online, batch["successors"], self._forward_room).view_as(valued)
        if self._quantiles == 1 and not self._double:
            best = valued.amax(-2)
        else:
            choice = judged.mean(-1).argmax(-1)[..., None, None]
            best = valued.gather(-2, choice.expand(*choice.shape[:-1], self._quantiles)).squeeze(-2)
        return batch["rewards"][..., None] + batch["discounts"][..., None] * best

    @torch.no_grad()
    def gradient(self, batch: Mapping[str, Tensor], targets_BQ: Tensor) -> Tensor:
        """Write the whole gradient of the loss over one minibatch, into the flat one.

        Returns:
            The values of the actions that were taken, [B, Q].
        """
        observations = batch["observations"]
        outputs = self._forward(self._online, observations, self._forward_room)
        chosen_B1Q = batch["actions"][:, None, None].expand(-1, 1, self._quantiles)
        values_BQ = outputs.view_as(self._d_outputs).gather(1, chosen_B1Q).squeeze(1)
        shares_B1 = batch["weights"][:, None] / len(observations)
        if self._quantiles == 1:
            d_values_BQ = (values_BQ - targets_BQ).clamp_(-1.0, 1.0).mul_(shares_B1)
        else:
            errors_BTQ = targets_BQ[:, :, None] - values_BQ[:, None]
            pulls = (self._fractions_11Q - (errors_BTQ < 0).float()).abs_()
            d_values_BQ = pulls.mul_(errors_BTQ.clamp_(-1.0, 1.0)).mean(1).neg_().mul_(shares_B1)
        self._d_outputs.zero_().scatter_(1, chosen_B1Q, d_values_BQ[:, None])
        self._backward(observations, self._d_outputs.view_as(outputs))
        return values_BQ

    def _forward(self, layers: Layers, x: Tensor, room: list[Tensor]) -> Tensor:
        last = len(layers) - 1
        for number, ((weight, bias), out) in enumerate(zip(layers, room, strict=True)):
            torch.addmm(bias, x, weight.t(), out=out)
            if number < last:
                _ = out.relu_() if self._relu else out.tanh_()
            x = out
        return x

    def _backward(self, observations: Tensor, d_outputs: Tensor) -> None:
        back = d_outputs
        for layer in reversed(range(len(self._online))):
            below = self._forward_room[layer - 1] if layer else observations
            of_weight, of_bias = self._gradients[layer]
            torch.mm(back.t(), below, out=of_weight)
            torch.sum(back, 0, out=of_bias)
            if not layer:
                return
            back = torch.mm(back, self._online[layer][0], out=self._back_room[layer - 1])
            if self._relu:
                torch.ops.aten.threshold_backward.grad_input(back, below, 0, grad_input=back)
            else:
                torch.ops.aten.tanh_backward.grad_input(back, below, grad_input=back)


def _layers(decision: Decision) -> Layers:
    return [(layer.weight.detach(), layer.bias.detach()) for layer in decision.body if isinstance(layer, nn.Linear)]


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
