"""Is another forward of a module the same function? Random numbers say so, in values and in gradients."""

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


def alike(module: nn.Module) -> Hashable:
    """Equal for modules that differ in nothing but the numbers of their weights: one of them stands for all."""
    facts = sorted((name, repr(value)) for name, value in vars(module).items() if isinstance(value, _FACTS))
    parts = [(name, type(part), repr(part)) for name, part in module.named_children()]
    weights = [(name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in module.named_parameters()]
    return type(module), tuple(facts), tuple(parts), tuple(weights)
