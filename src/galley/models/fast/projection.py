"""Linear layers that read the same input, with their LoRA factors, as one matrix product each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from galley.models.fast.memory import Columns, Scratch


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

    R is the sum of the adapters' ranks. With the matrix [in + R, out] = [W^T; s B^T],

        [x, x A^T] @ matrix    is y, and
        dy @ matrix^T          is [dx without the adapter's part, d(x A^T)].

    The model's own weights become views of the matrix, so that nothing is held twice.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self.linears = tuple(linears)
        self.width_in = linears[0].base.in_features
        self.width_out = sum(linear.base.out_features for linear in linears)
        self.rank = sum(linear.rank for linear in linears)
        self._set(torch.empty(0, 0), torch.empty(0, 0))
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
        matrix = like.new_zeros(self.width_in + self.rank, self.width_out)
        self._set(matrix, like.new_zeros(self.rank, self.width_in))
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
        self._pointers = None
        self._set(torch.empty(0, 0), torch.empty(0, 0))

    def _set(self, matrix: Tensor, down_RI: Tensor) -> None:
        self.matrix, self.down_RI = matrix, down_RI
        self._matrix_t, self._low_t, self._down_t = matrix.t(), matrix[self.width_in :].t(), down_RI.t()

    def factors(self) -> list[tuple[Tensor, Tensor, float]]:
        """(place, factor, scale) of everything that changes from step to step."""
        places = []
        for linear, out, rank in self.parts():
            if linear.down is None or linear.up is None:
                continue
            rows = slice(self.width_in + rank.start, self.width_in + rank.stop)
            places.append((self.down_RI[rank], linear.down.detach(), 1.0))
            places.append((self.matrix[rows, out], linear.up.detach().t(), linear.scale))
        return places

    def input(self, name: str, rows: int, scratch: Scratch) -> Columns:
        """Room for [x, x A^T] or its gradient."""
        return scratch.columns(name, rows, self.width_in, self.rank)

    def forward(self, x: Columns, out_TO: Tensor, add_TO: Tensor | None = None) -> Tensor:
        """Write y, plus `add_TO`, to `out_TO`; fills the low-rank columns of the input."""
        if self.rank:
            torch.mm(x.main, self._down_t, out=x.low)
        if add_TO is None and self.bias is None:
            return torch.mm(x.whole, self.matrix, out=out_TO)
        added = self.bias if add_TO is None else add_TO
        assert added is not None
        torch.addmm(added, x.whole, self.matrix, out=out_TO)
        if add_TO is not None and self.bias is not None:
            out_TO.add_(self.bias)
        return out_TO

    def backward_input(self, grad_TO: Tensor, into: Columns, only_low: bool = False) -> None:
        """Write [dx, d(x A^T)] to room from `input`; with `only_low` not dx, which nobody needs."""
        if only_low:
            torch.mm(grad_TO, self._low_t, out=into.low)
            return
        torch.mm(grad_TO, self._matrix_t, out=into.whole)
        if self.rank:
            into.main.addmm_(into.low, self.down_RI)

    def backward_factors(self, grad_TO: Tensor, x_TI: Tensor, low_TR: Tensor, d_low_TR: Tensor, grads: Tensor) -> None:
        """Gradients of the adapters.

        Args:
            grad_TO: dy.
            x_TI: x.
            low_TR: x A^T.
            d_low_TR: its gradient.
            grads: [numel], takes dA [R, in], then dB^T [R, out] without the scale.
        """
        if self.rank:
            split = self.rank * self.width_in
            torch.mm(d_low_TR.t(), x_TI, out=grads[:split].view(self.rank, -1))
            torch.mm(low_TR.t(), grad_TO, out=grads[split:].view(self.rank, -1))

    def parameter_grads(self, grads: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
        """The factors with their gradients, views of what `backward_factors` wrote, which is scaled in place."""
        split = self.rank * self.width_in
        downs, ups = grads[:split].view(self.rank, -1), grads[split:].view(self.rank, -1)
        result = []
        for linear, out, rank in self.parts():
            if linear.down is None or linear.up is None:
                continue
            up = ups[rank, out]
            # in the layout of its parameter, or autograd would copy it when nothing else runs
            result += [(linear.down, downs[rank]), (linear.up, up.mul_(linear.scale).t().contiguous())]
        return result
