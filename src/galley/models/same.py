"""Put another forward into modules where it is the same function: random numbers say so, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_FACTS = (bool, int, float, str, type(None))


def same_module(module: Any, forward: Callable[[Any, Tensor], Tensor], *, width: int) -> bool:
    """Whether outputs and gradients agree to the last place or two of the weights' precision.

    Args:
        module: takes one tensor.
        forward: takes the module and the tensor.
        width: last axis of the tensor.
    """
    like = next(p for p in module.parameters() if p.is_floating_point())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, width, generator=generator).mul_(3).to(like.device, like.dtype)
    leaves = (x.requires_grad_(), *(p for p in module.parameters() if p.requires_grad))
    limit = 2 * torch.finfo(like.dtype).eps if like.dtype != torch.float32 else 1e-5
    results = []
    for run in (module.forward, partial(forward, module)):
        try:
            with torch.enable_grad():
                out = run(leaves[0])
                g = torch.randn(out.shape, generator=generator.manual_seed(1)).to(out)
                results.append((out.detach(), *torch.autograd.grad(out, leaves, g)))
        except (RuntimeError, TypeError, AttributeError):
            return False
    return all(
        a.shape == b.shape and a.dtype == b.dtype and float((a - b).float().norm()) <= limit * float(a.float().norm())
        for a, b in zip(*results, strict=True)
    )


def fuse_where_same(
    module: nn.Module, is_candidate: Callable[[Any], bool], proven: Callable[[Any], type | None], mark: str
) -> int:
    """Give modules a class with another forward.

    Args:
        module: whose parts are looked at.
        is_candidate: a quick look at what a part has.
        proven: the class for such a part, after comparing; None where there is none.
        mark: attribute that these classes have.

    Returns:
        Number of parts that have such a class now.
    """
    found: dict[Hashable, type | None] = {}
    count = 0
    for part in module.modules():
        if mark not in vars(type(part)) and is_candidate(part):
            key = _alike(part)
            if key not in found:
                found[key] = proven(part)
            if (fused := found[key]) is not None:
                # A class and not an attribute: copies of the model keep it, and all layers share one compilation.
                part.__class__ = fused
        count += mark in vars(type(part))
    return count


def _alike(module: nn.Module) -> Hashable:
    """Equal for modules that differ in nothing but the numbers of their weights: one of them stands for all."""
    own = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    facts = [(name, repr(value) if isinstance(value, _FACTS) else id(value)) for name, value in own]
    parts = [(name, type(part), repr(part)) for name, part in module.named_children()]
    weights = [(name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in module.named_parameters()]
    return type(module), tuple(facts), tuple(parts), tuple(weights)
