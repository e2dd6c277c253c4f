"""RMS norms with half the passes over memory, put into a loaded model where they are proven to say the same."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from galley.models import compiled
from galley.models.same import fuse_where_same, same_module


def fuse_norms(module: nn.Module) -> int:
    """Give every RMS norm the fused forward, after comparing both on random numbers.

    Args:
        module: a loaded model.

    Returns:
        Number of norms that were changed.
    """
    return fuse_where_same(module, lambda norm: bool(_epsilon_name(norm)), _proven, "fused_by_galley")


def _proven(norm: Any) -> type | None:
    """The fused class for such a norm, if both agree."""
    epsilon = _epsilon_name(norm)
    for offset in (0.0, 1.0):
        fused: Any = _fused_class(norm.__class__, epsilon, offset)
        if same_module(norm, fused.forward, width=len(norm.weight)):
            return fused  # type: ignore[no-any-return]
    return None


def _epsilon_name(norm: nn.Module) -> str:
    """Where a module that looks like an RMS norm keeps what is added to the mean square; empty for others."""
    weight = getattr(norm, "weight", None)
    one_argument = len(inspect.signature(norm.forward).parameters) == 1  # others have a gate
    if not (type(norm).__name__.endswith("RMSNorm") and one_argument and isinstance(weight, Tensor)):
        return ""
    found = [name for name in ("variance_epsilon", "eps") if isinstance(getattr(norm, name, None), float)]
    return found[0] if found and weight.dim() == 1 else ""


@cache
def _fused_class(kind: Any, epsilon: str, offset: float) -> Any:
    """The family's norm with another forward."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, getattr(self, epsilon), offset)

    return type(kind.__name__, (kind,), {"forward": forward, "fused_by_galley": True})


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, offset: float = 0.0) -> Tensor:
    """`x / rms(x) * (offset + weight)` over the last axis, computed in float32.

    Args:
        x: [..., H].
        weight: [H].
        epsilon: added to the mean square.
        offset: 1 for families that store the weight's distance from 1.
    """
    result: Tensor = _RmsNorm.apply(x, weight, epsilon, offset)  # type: ignore[no-untyped-call]
    return result


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, offset: float) -> Tensor:
        x_TH = x.reshape(-1, x.shape[-1]).contiguous()
        factor_H = weight.float() + offset if offset or compiled.takes(x) else weight
        if compiled.takes(x):
            out_TH = torch.empty_like(x_TH)
            inverse_T1 = compiled.norm(x_TH, factor_H, epsilon, out_TH)
        else:
            inverse_T1 = torch.linalg.vector_norm(x_TH, dim=-1, keepdim=True, dtype=torch.float32)
            inverse_T1 = inverse_T1.square_().div_(x_TH.shape[-1]).add_(epsilon).rsqrt_()
            out_TH = torch.mul(x_TH, inverse_T1).mul_(factor_H).to(x.dtype)
        ctx.save_for_backward(x_TH, inverse_T1, factor_H)
        ctx.weight_dtype = weight.dtype
        return out_TH.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_TH, inverse_T1, factor_H = ctx.saved_tensors
        grad_TH, d_weight = grad.reshape(x_TH.shape).contiguous(), None
        if ctx.needs_input_grad[1]:
            d_weight = torch.mul(x_TH, inverse_T1).mul_(grad_TH).sum(0).to(ctx.weight_dtype)
        if compiled.takes(x_TH, grad_TH):
            d_x_TH = torch.empty_like(x_TH)
            compiled.norm_gradient(grad_TH, x_TH, inverse_T1, factor_H, d_x_TH)
        else:
            unit, inner = torch.mul(x_TH, inverse_T1), torch.mul(grad_TH.float(), factor_H)
            mean_T1 = torch.linalg.vecdot(unit, inner).unsqueeze(-1).div_(x_TH.shape[-1])
            d_x_TH = inner.addcmul_(unit, mean_T1, value=-1).mul_(inverse_T1).to(x_TH.dtype)
        return d_x_TH.view(grad.shape), d_weight, None, None
