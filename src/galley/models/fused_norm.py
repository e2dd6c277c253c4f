"""RMS norms with half the passes over memory, put into a loaded model where they are proven to say the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn


def fuse_norms(module: nn.Module) -> int:
    """Give every RMS norm the fused forward, after comparing both on random numbers.

    Args:
        module: a loaded model.

    Returns:
        Number of norms that were changed.
    """
    count = 0
    for norm in module.modules():
        kind: Any = type(norm)
        if vars(kind).get("fused_by_galley"):
            count += 1
            continue
        epsilon = _epsilon_name(norm)
        for offset in (0.0, 1.0) if epsilon else ():
            fused = _fused_class(kind, epsilon, offset)
            if _same(norm, fused.forward):
                # A class and not an attribute: copies of the model keep it, and all layers share one compilation.
                norm.__class__ = fused
                count += 1
                break
    return count


def _epsilon_name(norm: nn.Module) -> str:
    """Where a module that looks like an RMS norm keeps what is added to the mean square; empty for others."""
    weight = getattr(norm, "weight", None)
    one_argument = len(inspect.signature(norm.forward).parameters) == 1  # others have a gate
    if not (type(norm).__name__.endswith("RMSNorm") and one_argument and isinstance(weight, Tensor)):
        return ""
    found = [name for name in ("variance_epsilon", "eps") if isinstance(getattr(norm, name, None), float)]
    return found[0] if found and weight.dim() == 1 else ""


def _same(norm: Any, fused: Callable[[Any, Tensor], Tensor]) -> bool:
    """Outputs and gradients agree to the last place or two of the weights' precision."""
    weight: Tensor = norm.weight
    generator = torch.Generator().manual_seed(0)
    size = (2, 3, len(weight))
    x, g = (torch.randn(size, generator=generator).to(weight.device, weight.dtype) for _ in range(2))
    limit = 2 * torch.finfo(weight.dtype).eps if weight.dtype != torch.float32 else 1e-5
    leaves = (x.mul_(3).requires_grad_(), *((weight,) if weight.requires_grad else ()))
    results = []
    for forward in (norm.forward, partial(fused, norm)):
        try:
            with torch.enable_grad():
                out = forward(leaves[0])
                results.append((out.detach(), *torch.autograd.grad(out, leaves, g)))
        except (RuntimeError, TypeError):
            return False
    return all(
        a.shape == b.shape and a.dtype == b.dtype and float((a - b).float().norm()) <= limit * float(a.float().norm())
        for a, b in zip(*results, strict=True)
    )


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
        size_T1 = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        inverse_T1 = size_T1.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        factor_H = weight if offset == 0.0 else weight.float() + offset
        ctx.save_for_backward(x, inverse_T1, factor_H)
        ctx.weight_dtype = weight.dtype
        return torch.mul(x, inverse_T1).mul_(factor_H).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, inverse_T1, factor_H = ctx.saved_tensors
        unit, d_weight = torch.mul(x, inverse_T1), None
        if ctx.needs_input_grad[1]:
            d_weight = torch.mul(unit, grad).flatten(0, -2).sum(0).to(ctx.weight_dtype)
        inner = torch.mul(grad.float(), factor_H)
        mean_T1 = torch.linalg.vecdot(unit, inner).unsqueeze(-1).div_(x.shape[-1])
        return inner.addcmul_(unit, mean_T1, value=-1).mul_(inverse_T1).to(x.dtype), d_weight, None, None
