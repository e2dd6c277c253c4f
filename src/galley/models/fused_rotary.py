"""Rotary position embeddings in one pass over memory, put in where they are proven to say the same."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from galley.models import compiled

_NAME = "apply_rotary_pos_emb"

Rotary: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""(query, key, cosine, sine) -> (query, key), as transformers has it beside each family's model."""


def fuse_rotary(module: nn.Module) -> int:
    """Give the families of these modules the fused function, after comparing on random numbers.

    It takes the place of a function of transformers, for whoever calls it; what it does not do, the first one does.

    Args:
        module: a loaded model.

    Returns:
        Number of functions that are fused now.
    """
    homes = {type(part).__module__ for part in module.modules()}
    return sum(_fuse(sys.modules[home]) for home in sorted(homes) if home in sys.modules)


def _fuse(home: Any) -> bool:
    original: Rotary | None = getattr(home, _NAME, None)
    if original is None or hasattr(original, "fused_by_galley"):
        return original is not None
    fused = _fused(original)
    if not _same(original, fused):
        return False
    setattr(home, _NAME, fused)
    return True


def _fused(original: Any) -> Any:
    @wraps(original)
    def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        # One row of packed documents, heads before tokens, all of each head turned.
        alike = cos.shape == sin.shape == (1, q.shape[2], q.shape[3]) and len(q) == len(k) == 1
        if args or kwargs or not alike or not compiled.takes(q, k, cos, sin):
            result: tuple[Tensor, Tensor] = original(q, k, cos, sin, *args, **kwargs)
            return result
        return _Rotary.apply(q, cos, sin), _Rotary.apply(k, cos, sin)  # type: ignore[no-untyped-call]

    rotary.fused_by_galley = True  # type: ignore[attr-defined]
    return rotary


def _same(original: Rotary, fused: Rotary) -> bool:
    """Whether values and gradients agree to the last places of bfloat16."""
    if list(inspect.signature(original).parameters)[:4] != ["q", "k", "cos", "sin"]:
        return False
    generator = torch.Generator().manual_seed(0)
    q, k, *g = (torch.randn(1, heads, 5, 32, generator=generator).bfloat16() for heads in (4, 2, 4, 2))
    cos, sin = (torch.randn(1, 5, 32, generator=generator).bfloat16() for _ in "cs")
    results = []
    for function in (original, fused):
        leaves = [q.clone().requires_grad_(), k.clone().requires_grad_()]
        try:
            with torch.enable_grad():
                out = function(*leaves, cos, sin)
                results.append([*out, *torch.autograd.grad(out, leaves, g)])
        except (RuntimeError, TypeError, IndexError):
            return False
    limit = 2 * torch.finfo(torch.bfloat16).eps
    return all(
        a.shape == b.shape and float((a - b).detach().float().norm()) <= limit * float(a.detach().float().norm())
        for a, b in zip(*results, strict=True)
    )


class _Rotary(torch.autograd.Function):
    """Result and gradient lie head by head and token by token, as what comes next wants them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos_TE, sin_TE = cos[0].contiguous(), sin[0].contiguous()
        ctx.save_for_backward(cos_TE, sin_TE)
        out_HTE = torch.empty(x.shape[1:], dtype=x.dtype)
        compiled.turn(_even(x[0]), cos_TE, sin_TE, out_HTE, back=False)
        return out_HTE[None]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, heads, tokens, width = grad.shape
        into_HTE = torch.empty(tokens, heads, width, dtype=grad.dtype).transpose(0, 1)
        cos_TE, sin_TE = ctx.saved_tensors
        compiled.turn(_even(grad[0]), cos_TE, sin_TE, into_HTE, back=True)
        return into_HTE[None], None, None


def _even(x: Tensor) -> Tensor:
    """The tensor, its last axis without gaps."""
    return x if x.stride(-1) == 1 else x.contiguous()
