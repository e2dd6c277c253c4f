"""The element-wise parts of a Llama layer with their hand-written backward passes, on buffers that are used again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from galley.models import compiled
from galley.models.fast.memory import Columns, Scratch


@dataclass(frozen=True)
class RmsNorm:
    """Root-mean-square norm: `x / rms(x) * weight`, computed in float32.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """

    weight_D: Tensor
    """float32; gemma's `1 + w` already added."""
    eps: float

    def forward(self, x_TD: Tensor, out_TD: Tensor, scratch: Scratch) -> Tensor:
        """Write the normed rows to `out_TD`; returns 1 / rms, [T, 1] float32, which the backward pass needs."""
        if x_TD.dim() == 2 and compiled.takes(x_TD, out_TD):
            return compiled.norm(x_TD, self.weight_D, self.eps, out_TD)
        x = scratch.take_float("norm_x", *x_TD.shape).copy_(x_TD)
        inverse_T1: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse_T1.square_().div_(x.shape[-1]).add_(self.eps).rsqrt_()
        out_TD.copy_(x.mul_(inverse_T1).mul_(self.weight_D))
        return inverse_T1

    def again(self, x_TD: Tensor, inverse_T1: Tensor, out_TD: Tensor, scratch: Scratch) -> None:
        """The forward pass once more: the rows to `out_TD`."""
        if x_TD.dim() == 2 and compiled.takes(x_TD, out_TD):
            compiled.norm_again(x_TD, inverse_T1, self.weight_D, out_TD)
        else:
            out_TD.copy_(self._unit(x_TD, inverse_T1, scratch).mul_(self.weight_D))

    def backward(self, grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, into_TD: Tensor, scratch: Scratch) -> None:
        """Add the gradient by x to `into_TD`, float32."""
        if x_TD.dim() == 2 and compiled.takes(grad_TD, x_TD):
            compiled.norm_backward(grad_TD, x_TD, inverse_T1, self.weight_D, into_TD)
            return
        unit_TD = self._unit(x_TD, inverse_T1, scratch)
        grad = scratch.take_float("norm_g", *grad_TD.shape).copy_(grad_TD).mul_(self.weight_D)
        product = torch.mul(grad, unit_TD, out=scratch.take_float("norm_y", *grad_TD.shape))
        along_T1 = product.mean(-1, keepdim=True)
        into_TD.addcmul_(grad.addcmul_(unit_TD, along_T1, value=-1), inverse_T1)

    @staticmethod
    def _unit(x_TD: Tensor, inverse_T1: Tensor, scratch: Scratch) -> Tensor:
        return scratch.take_float("norm_x", *x_TD.shape).copy_(x_TD).mul_(inverse_T1)


def rotate(x_THE: Tensor, cos_TE: Tensor, sin_TE: Tensor, scratch: Scratch) -> None:
    """Rotary position embedding in place, halves convention; its transpose is the same with `-sin`.

    Args:
        x_THE: heads to rotate, [T, H, head_dim].
        cos_TE: [T, 1, head_dim / 2], in the type of the heads.
        sin_TE: the same.
        scratch: where to compute.

    Source: Su et al. 2021, arXiv 2104.09864.
    """
    if compiled.takes(x_THE, cos_TE, sin_TE):
        compiled.rotate(x_THE, cos_TE, sin_TE)
        return
    half = x_THE.shape[-1] // 2
    low, high = x_THE[..., :half], x_THE[..., half:]
    across = scratch.take("rotate", 2, *low.shape)
    torch.mul(low, sin_TE, out=across[0])
    torch.mul(high, sin_TE, out=across[1])
    low.mul_(cos_TE).sub_(across[1])
    high.mul_(cos_TE).add_(across[0])


@dataclass(frozen=True)
class Gate:
    """`f(gate) * up` with its gradients, writing into given tensors."""

    activation: Callable[[Tensor, Tensor], Tensor]
    """(x, out) -> out = f(x)."""
    derivative: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(grad, x, out) -> out = grad * f'(x)."""
    is_silu: bool = False

    def product(self, gate_TI: Tensor, up_TI: Tensor, out_TI: Tensor) -> Tensor:
        """Write the product to `out_TI`, and return it."""
        if self.is_silu and compiled.takes(gate_TI, up_TI, out_TI):
            compiled.silu_product(gate_TI, up_TI, out_TI)
            return out_TI
        return self.activation(gate_TI, out_TI).mul_(up_TI)

    def backward(self, grad_TI: Tensor, gate_TI: Tensor, up_TI: Tensor, into: Columns, scratch: Scratch) -> None:
        """Write the gradients by gate and by up, side by side, to `into`; `grad_TI` is used up."""
        d_gate, d_up = into.main, into.low
        if self.is_silu and compiled.takes(grad_TI, gate_TI, up_TI, d_gate):
            compiled.silu_product_backward(grad_TI, gate_TI, up_TI, d_gate, d_up)
            return
        active = self.activation(gate_TI, scratch.take("active", *gate_TI.shape))
        torch.mul(grad_TI, active, out=d_up)
        self.derivative(grad_TI.mul_(up_TI), gate_TI, d_gate)


def _silu(x: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten.silu.out(x, out=out)  # type: ignore[no-any-return]


def _silu_backward(grad: Tensor, x: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten.silu_backward.grad_input(grad, x, grad_input=out)  # type: ignore[no-any-return]


def _gelu(approximate: str) -> Gate:
    def activation(x: Tensor, out: Tensor) -> Tensor:
        return torch.ops.aten.gelu.out(x, approximate=approximate, out=out)  # type: ignore[no-any-return]

    def derivative(grad: Tensor, x: Tensor, out: Tensor) -> Tensor:
        return torch.ops.aten.gelu_backward.grad_input(  # type: ignore[no-any-return]
            grad, x, approximate=approximate, grad_input=out
        )

    return Gate(activation, derivative)


GATES = {
    "silu": Gate(_silu, _silu_backward, is_silu=True),
    "gelu": _gelu("none"),
    "gelu_pytorch_tanh": _gelu("tanh"),
}


def head_logprobs(
    hidden_ND: Tensor, targets_N: Tensor, weight_VD: Tensor, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of the targets, and their gradient by the hidden rows while the logits are at hand.

    Each log-probability depends on its own row only, so that the backward pass just scales these gradients.

    Returns:
        Log-probabilities [N] float32, and gradients [N, D] in the type of the hidden rows (or None).
    """
    chunk = 128
    """Rows; the largest temporary is chunk x vocabulary, float32."""
    logprobs, grads = [], []
    for hidden_CD, targets_C in zip(torch.split(hidden_ND, chunk), torch.split(targets_N, chunk), strict=True):
        # the large factor first: the product then needs no copy of it
        logits_CV = (weight_VD @ hidden_CD.t()).t().float()
        total_C1 = torch.logsumexp(logits_CV, -1, keepdim=True)
        logprobs.append((logits_CV.gather(1, targets_C[:, None]) - total_C1).squeeze(1))
        if with_gradient:
            share_CV = logits_CV.sub_(total_C1).exp_().to(hidden_CD.dtype)
            grads.append(weight_VD.index_select(0, targets_C) - share_CV @ weight_VD)
    if not logprobs:
        return hidden_ND.new_zeros(0, dtype=torch.float32), hidden_ND.new_zeros(0, hidden_ND.shape[1])
    return torch.cat(logprobs), torch.cat(grads) if with_gradient else None
