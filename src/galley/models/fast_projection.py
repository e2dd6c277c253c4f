"""Linear layers that read the same input, with their LoRA factors, as one matrix product each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from galley.models.fast_kernels import Scratch


@dataclass(frozen=True)
class Linear:
    """One linear layer of the model, with or without an adapter.

    Args:
        base: owns the frozen weight.
        down: A, [rank, in], or None.
        up: B, [out, rank], or None.
        adapter: the PEFT layer, asked for its scale and whether it is switched off.
        adapter_name: of the active adapter.
    """

    base: nn.Linear
    down: nn.Parameter | None = None
    up: nn.Parameter | None = None
    adapter: Any = None
    adapter_name: str = ""

    @property
    def rank(self) -> int:
        """Rank of the adapter, or 0."""
        return 0 if self.down is None else int(self.down.shape[0])

    @property
    def scale(self) -> float:
        """What the adapter's output is multiplied with; 0 while it is switched off or merged into the weight."""
        if self.adapter is None or self.adapter.disable_adapters or self.adapter.merged:
            return 0.0
        return float(self.adapter.scaling[self.adapter_name])


class Projection:
    """Linear layers side by side, as `y = x W^T + s (x A^T) B^T` in one product, and likewise backwards.

    One matrix [in + R, out + R] holds everything (R: ranks of all adapters together):

        [ W^T    A^T ]      forward:  [x, x A^T]  times the left columns
        [ s B^T   -  ]      backward: [dy, dy sB] times the transpose of the upper rows

    The model's own weights become views into it, so that nothing is held twice.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self.linears = tuple(linears)
        self.width_in = linears[0].base.in_features
        self.width_out = sum(linear.base.out_features for linear in linears)
        self.rank = sum(linear.rank for linear in linears)
        self.matrix = torch.empty(0)
        self.bias: Tensor | None = None
        self._pointers: list[int] | None = None

    @property
    def numel(self) -> int:
        """Gradient elements of the adapters."""
        return self.rank * (self.width_in + self.width_out)

    def parts(self) -> list[tuple[Linear, slice, slice]]:
        """Each layer with its outputs and its ranks."""
        parts, out, rank = [], 0, 0
        for linear in self.linears:
            stop_out, stop_rank = out + linear.base.out_features, rank + linear.rank
            parts.append((linear, slice(out, stop_out), slice(rank, stop_rank)))
            out, rank = stop_out, stop_rank
        return parts

    def linked(self) -> bool:
        """Whether the model's weights are still the views that were put there."""
        return self._pointers == [linear.base.weight.data_ptr() for linear in self.linears]

    def link(self) -> None:
        """Make the matrix from the model's weights, and the weights views of it."""
        like = self.linears[0].base.weight
        self.matrix = like.new_zeros(self.width_in + self.rank, self.width_out + self.rank)
        for linear, out, _ in self.parts():
            view = self.matrix[: self.width_in, out].t()
            view.copy_(linear.base.weight)
            linear.base.weight.data = view
        if any(linear.base.bias is not None for linear in self.linears):
            biases = [
                like.new_zeros(linear.base.out_features) if linear.base.bias is None else linear.base.bias.detach()
                for linear in self.linears
            ]
            self.bias = torch.cat(biases)
        self._pointers = [linear.base.weight.data_ptr() for linear in self.linears]

    def unlink(self) -> None:
        """Give the model weights of its own again."""
        for linear in self.linears:
            linear.base.weight.data = linear.base.weight.detach().clone(memory_format=torch.contiguous_format)
        self.matrix = torch.empty(0)

    def factors(self) -> list[tuple[Tensor, Tensor, float]]:
        """(place in the matrix, factor, scale) of everything that changes from step to step."""
        places = []
        for linear, out, rank in self.parts():
            if linear.down is None or linear.up is None:
                continue
            columns = slice(self.width_out + rank.start, self.width_out + rank.stop)
            rows = slice(self.width_in + rank.start, self.width_in + rank.stop)
            places.append((self.matrix[: self.width_in, columns], linear.down.detach().t(), 1.0))
            places.append((self.matrix[rows, out], linear.up.detach().t(), linear.scale))
        return places

    def input(self, name: str, rows: int, scratch: Scratch) -> Tensor:
        """Room for [x, x A^T]; the caller fills the first `width_in` columns."""
        return scratch.take(name, rows, self.width_in + self.rank)

    def output(self, name: str, rows: int, scratch: Scratch) -> Tensor:
        """Room for [dy, dy sB]; the caller fills the first `width_out` columns."""
        return scratch.take(name, rows, self.width_out + self.rank)

    def forward(self, input_TI: Tensor, out_TO: Tensor, add_TO: Tensor | None = None) -> Tensor:
        """Write y, plus `add_TO`, to `out_TO`; fills the low-rank columns of the input."""
        left = self.matrix[:, : self.width_out]
        if self.rank:
            low = self.matrix[: self.width_in, self.width_out :]
            torch.mm(input_TI[:, : self.width_in], low, out=input_TI[:, self.width_in :])
        if add_TO is not None:
            torch.addmm(add_TO, input_TI, left, out=out_TO)
            if self.bias is not None:
                out_TO.add_(self.bias)
        elif self.bias is not None:
            torch.addmm(self.bias, input_TI, left, out=out_TO)
        else:
            torch.mm(input_TI, left, out=out_TO)
        return out_TO

    def backward(self, grad_TO: Tensor, input_TI: Tensor, low_TR: Tensor, grads: Tensor, out_TI: Tensor | None) -> None:
        """Gradients of the factors and of the input.

        Args:
            grad_TO: room from `output`, filled with dy.
            input_TI: x, at least [T, in].
            low_TR: x A^T.
            grads: [numel]; dA [R, in], then dB^T [R, out], without the scale.
            out_TI: takes dx; None where nobody needs it.
        """
        grad_y = grad_TO[:, : self.width_out]
        if self.rank:
            grad_low = grad_TO[:, self.width_out :]
            torch.mm(grad_y, self.matrix[self.width_in :, : self.width_out].t(), out=grad_low)
            split = self.rank * self.width_in
            torch.mm(grad_low.t(), input_TI[:, : self.width_in], out=grads[:split].view(self.rank, -1))
            torch.mm(low_TR.t(), grad_y, out=grads[split:].view(self.rank, -1))
        if out_TI is not None:
            torch.mm(grad_TO, self.matrix[: self.width_in].t(), out=out_TI)

    def parameter_grads(self, grads: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
        """The factors with their gradients, from what `backward` wrote (float32, all lanes added)."""
        split = self.rank * self.width_in
        down, up = grads[:split].view(self.rank, -1), grads[split:].view(self.rank, -1)
        result = []
        for linear, out, rank in self.parts():
            if linear.down is None or linear.up is None:
                continue
            result.append((linear.down, down[rank]))
            result.append((linear.up, torch.empty_like(linear.up, dtype=grads.dtype)))
            torch.mul(up[rank, out].t(), linear.scale, out=result[-1][1])
        return result
