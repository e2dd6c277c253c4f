"""LoRA layers with little around their matrix products: PEFT's layers, parameters and names; our forward and backward.

PEFT computes `base(x) + B(A(x)) * scale` with full-width copies for each sign in it. Here the scale goes into the small
factor, the sum into the matrix product, and the backward pass makes no gradient for frozen weights. Layers that read
the same input (queries, keys and values; gate and up) share a product with their A, and a sum of what they pass back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that usually read the same input. Whether they do is seen at each call."""


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
    for parent in module.modules():
        for names in _SIBLINGS:
            layers = [getattr(parent, name, None) for name in names]
            if all(type(layer) is fused for layer in layers):
                together = _Together(layers)
                for sibling in layers:
                    vars(sibling)["together"] = together  # a plain attribute: no module has another for a part
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
        if args or kwargs or not _takes(self, x):
            original: Tensor = linear.forward(self, x, *args, **kwargs)
            return original
        together: _Together | None = vars(self).get("together")
        out = None if together is None else together.take(self, x)
        return lora_linears(x, [_factors(self)])[0] if out is None else out

    return type(linear.__name__, (linear,), {"forward": forward})


def _takes(layer: Any, x: Tensor) -> bool:
    """Whether the fused forward is what the layer would do with this input now."""
    name = next(iter(layer.lora_A))
    plain = not (layer.disable_adapters or layer.merged) and layer.active_adapters == [name]
    return plain and x.dtype == layer.base_layer.weight.dtype and not torch.is_autocast_enabled(x.device.type)


class _Together:
    """Layers of which the first to read an input computes for the others as well."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers = list(layers)
        self._input: Tensor | None = None
        self._ready: dict[int, Tensor] = {}

    def take(self, layer: Any, x: Tensor) -> Tensor | None:
        """The output of the layer, or None where it has to compute it alone."""
        place = next(index for index, other in enumerate(self._layers) if other is layer)
        if place == 0:
            if torch.compiler.is_compiling() or not all(_takes(other, x) for other in self._layers):
                return None
            first, *others = lora_linears(x, [_factors(other) for other in self._layers])
            self._input, self._ready = x, dict(enumerate(others, 1))
            return first
        out = self._ready.pop(place, None) if self._input is x else None
        if not self._ready:
            self._input = None
        return out


@dataclass(frozen=True)
class Factors:
    """A linear layer and its adapter.

    Args:
        weight: W, [out, in].
        bias: b, [out].
        down: A, [rank, in]; may be float32 where the input is bfloat16.
        up: B, [out, rank].
        scale: alpha / rank.
    """

    weight: Tensor
    bias: Tensor | None
    down: Tensor
    up: Tensor
    scale: float


def _factors(layer: Any) -> Factors:
    name, base = next(iter(layer.lora_A)), layer.base_layer
    return Factors(base.weight, base.bias, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name])


def lora_linears(x: Tensor, layers: Sequence[Factors]) -> list[Tensor]:
    """`x W^T + b + scale * (x A^T) B^T` of each layer, computed in the precision of `x`, [..., in]."""
    # Views are made out here: some models clip the result in place, which no view made inside would allow.
    x_TI = x.reshape(-1, x.shape[-1])
    tensors = [part for layer in layers for part in (layer.weight, layer.bias, layer.down, layer.up)]
    scales = [layer.scale for layer in layers]
    outs: Sequence[Tensor] = _LoraLinears.apply(x_TI, scales, *tensors)  # type: ignore[no-untyped-call]
    return [out_TO.view(*x.shape[:-1], -1) for out_TO in outs]


class _LoraLinears(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, scales: Sequence[float], *tensors: Any) -> tuple[Tensor, ...]:
        weights, biases, downs, ups = (tensors[place::4] for place in range(4))
        down_RI = downs[0].to(x_TI.dtype) if len(downs) == 1 else torch.cat(downs).to(x_TI.dtype)
        ups_OR = [(up * scale).to(x_TI.dtype) for up, scale in zip(ups, scales, strict=True)]
        low_TR = x_TI @ down_RI.T
        ranks = [len(down) for down in downs]
        outs = [
            functional.linear(x_TI, weight, bias).addmm_(low, up_OR.T)
            for weight, bias, low, up_OR in zip(weights, biases, torch.split(low_TR, ranks, 1), ups_OR, strict=True)
        ]
        ctx.save_for_backward(x_TI, low_TR, down_RI, *weights, *ups_OR)
        ctx.scales, ctx.ranks = scales, ranks
        ctx.down_dtypes, ctx.up_dtypes = [down.dtype for down in downs], [up.dtype for up in ups]
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads_TO: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, low_TR, down_RI, *rest = ctx.saved_tensors
        weights, ups_OR = rest[: len(grads_TO)], rest[len(grads_TO) :]
        need_x, _, *needs = ctx.needs_input_grad
        low_grad_TR = torch.cat([grad @ up for grad, up in zip(grads_TO, ups_OR, strict=True)], 1)
        d_x = None
        if need_x:
            d_x = grads_TO[0] @ weights[0]
            for grad, weight in zip(grads_TO[1:], weights[1:], strict=True):
                d_x.addmm_(grad, weight)
            d_x.addmm_(low_grad_TR, down_RI)
        d_downs = torch.split(low_grad_TR.T @ x_TI, ctx.ranks) if any(needs[2::4]) else [None] * len(grads_TO)
        result: list[Tensor | None] = []
        for place, (grad, low) in enumerate(zip(grads_TO, torch.split(low_TR, ctx.ranks, 1), strict=True)):
            need_weight, need_bias, need_down, need_up = needs[4 * place : 4 * place + 4]
            d_down = d_downs[place]
            result += [
                grad.T @ x_TI if need_weight else None,
                grad.sum(0) if need_bias else None,
                d_down.to(ctx.down_dtypes[place]) if need_down and d_down is not None else None,
                (grad.T @ low).to(ctx.up_dtypes[place]).mul_(ctx.scales[place]) if need_up else None,
            ]
        return d_x, None, *result
