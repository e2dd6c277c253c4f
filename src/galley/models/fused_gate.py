"""Gated MLPs whose product `silu(gate) * up` is one pass over memory, put in where it is proven to say the same."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from galley.models import compiled
from galley.models.same import fuse_where_same, same_module

_PARTS = ("gate_proj", "up_proj", "down_proj")


def fuse_gates(module: nn.Module) -> int:
    """Give every MLP of the form `down(silu(gate(x)) * up(x))` the fused product, after comparing on random numbers.

    Args:
        module: a loaded model.

    Returns:
        Number of MLPs that were changed.
    """
    return fuse_where_same(module, _looks_gated, _proven, "gate_fused_by_galley")


def _looks_gated(mlp: Any) -> bool:
    parts = all(isinstance(getattr(mlp, part, None), nn.Module) for part in _PARTS)
    return parts and len(inspect.signature(mlp.forward).parameters) == 1


def _proven(mlp: Any) -> type | None:
    """The fused class for such an MLP, if both agree."""
    fused: Any = _fused_class(mlp.__class__)
    width = getattr(mlp.gate_proj, "in_features", 0)
    return fused if width and same_module(mlp, fused.forward, width=width) else None


@cache
def _fused_class(kind: Any) -> Any:
    """The family's MLP with another forward."""

    def forward(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(silu_product(self.gate_proj(x), self.up_proj(x)))
        return out

    return type(kind.__name__, (kind,), {"forward": forward, "gate_fused_by_galley": True})


def silu_product(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`, computed in float32 and rounded once where loops are compiled."""
    if not compiled.takes(gate, up):
        return functional.silu(gate) * up
    result: Tensor = _SiluProduct.apply(gate, up)  # type: ignore[no-untyped-call]
    return result


class _SiluProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate_TI, up_TI = (part.reshape(-1, part.shape[-1]).contiguous() for part in (gate, up))
        ctx.save_for_backward(gate_TI, up_TI)
        out_TI = torch.empty_like(gate_TI)
        compiled.silu_product(gate_TI, up_TI, out_TI)
        return out_TI.view(gate.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate_TI, up_TI = ctx.saved_tensors
        d_gate_TI, d_up_TI = torch.empty_like(gate_TI), torch.empty_like(up_TI)
        grad_TI = grad.reshape(gate_TI.shape).contiguous()
        compiled.silu_product_backward(grad_TI, gate_TI, up_TI, d_gate_TI, d_up_TI)
        return d_gate_TI.view(grad.shape), d_up_TI.view(grad.shape)
