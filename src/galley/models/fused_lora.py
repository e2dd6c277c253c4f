"""LoRA layers with little around their matrix products: PEFT's layers, parameters and names; our forward and backward.

PEFT computes `base(x) + B(A(x)) * scale` with full-width copies for each sign in it. Here the scale goes into the small
factor, the sum into the matrix product, and the backward pass makes no gradient for frozen weights.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def fuse_lora(module: nn.Module) -> int:
    """Give every plain LoRA layer of the module the fused forward; others keep PEFT's.

    Args:
        module: a model with PEFT layers inside, or without any.

    Returns:
        Number of layers that were changed.
    """
    peft_lora = sys.modules.get("peft.tuners.lora.layer")
    if peft_lora is None:
        return 0
    fused = _fused_class(peft_lora.Linear)
    count = 0
    for layer in module.modules():
        if type(layer) is peft_lora.Linear and _is_plain(layer):
            # A class and not an attribute: copies of the model keep it, and all layers share one compilation.
            layer.__class__ = fused
        count += type(layer) is fused
    return count


def _is_plain(layer: Any) -> bool:
    """One adapter on an `nn.Linear`, without dropout, bias or a variant such as DoRA."""
    names = list(layer.lora_A.keys())
    return (
        type(layer.base_layer) is nn.Linear
        and len(names) == 1
        and not layer.lora_variant
        and not layer.fan_in_fan_out
        and not layer.lora_bias.get(names[0])
        and type(layer.lora_dropout[names[0]]) is nn.Identity
        and layer.lora_A[names[0]].weight.dtype in (layer.base_layer.weight.dtype, torch.float32)
    )


@cache
def _fused_class(linear: Any) -> Any:
    """PEFT's layer with another forward; made here, since PEFT is imported only where there are adapters."""

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        (name,) = self.lora_A.keys()
        base = self.base_layer
        plain = not (args or kwargs or self.disable_adapters or self.merged) and self.active_adapters == [name]
        if not plain or x.dtype != base.weight.dtype or torch.is_autocast_enabled(x.device.type):
            original: Tensor = linear.forward(self, x, *args, **kwargs)
            return original
        down, up = self.lora_A[name].weight, self.lora_B[name].weight
        return lora_linear(x, base.weight, base.bias, down, up, self.scaling[name])

    return type(linear.__name__, (linear,), {"forward": forward})


def lora_linear(x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """`x W^T + b + scale * (x A^T) B^T`, computed in the precision of `x`.

    Args:
        x: [..., in].
        weight: W, [out, in].
        bias: b, [out].
        down: A, [rank, in]; may be float32 where x is bfloat16.
        up: B, [out, rank].
        scale: alpha / rank.
    """
    # Views are made out here: some models clip the result in place, which no view made inside would allow.
    x_TI = x.reshape(-1, x.shape[-1])
    out_TO: Tensor = _LoraLinear.apply(x_TI, weight, bias, down, up, scale)  # type: ignore[no-untyped-call]
    return out_TO.view(*x.shape[:-1], -1)


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, down: Tensor, up: Tensor, scale: float
    ) -> Tensor:
        down_RI, up_OR = down.to(x_TI.dtype), (up * scale).to(x_TI.dtype)
        low_TR = x_TI @ down_RI.T
        ctx.save_for_backward(x_TI, low_TR, weight_OI, down_RI, up_OR)
        ctx.scale, ctx.dtypes = scale, (down.dtype, up.dtype)
        return functional.linear(x_TI, weight_OI, bias_O).addmm_(low_TR, up_OR.T)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, low_TR, weight_OI, down_RI, up_OR = ctx.saved_tensors
        need_x, need_weight, need_bias, need_down, need_up, _ = ctx.needs_input_grad
        low_grad_TR = grad_TO @ up_OR
        d_x = (grad_TO @ weight_OI).addmm_(low_grad_TR, down_RI) if need_x else None
        d_weight = grad_TO.T @ x_TI if need_weight else None
        d_bias = grad_TO.sum(0) if need_bias else None
        d_down = (low_grad_TR.T @ x_TI).to(ctx.dtypes[0]) if need_down else None
        d_up = (grad_TO.T @ low_TR).to(ctx.dtypes[1]).mul_(ctx.scale) if need_up else None
        return d_x, d_weight, d_bias, d_down, d_up, None
