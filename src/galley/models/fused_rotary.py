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
        # Heads before tokens, all of each head turned, every row by its own positions or all by the same.
        alike = cos.shape == sin.shape and cos.shape[1:] == (q.shape[2], q.shape[3]) and len(cos) in (1, len(q))
        if args or kwargs or not alike or not compiled.takes(q, k, cos, sin):
            result: tuple[Tensor, Tensor] = original(q, k, cos, sin, *args, **kwargs)
            return result
        cos_TE, sin_TE = (part.expand(len(q), -1, -1).reshape(-1, q.shape[3]) for part in (cos, sin))
        return _Rotary.apply(q, cos_TE, sin_TE), _Rotary.apply(k, cos_TE, sin_TE)  # type: ignore[no-untyped-call]

    rotary.fused_by_galley = True  # type: ignore[attr-defined]
    return rotary


def _same(original: Rotary, fused: Rotary) -> bool:
    """Whether values and gradients agree to the last places of bfloat16."""
    if list(inspect.signature(original).parameters)[:4] != ["q", "k", "cos", "sin"]:
        return False
    generator = torch.Generator().manual_seed(0)
    q, k, *g = (torch.randn(2, heads, 5, 32, generator=generator).bfloat16() for heads in (4, 2, 4, 2))
    cos, sin = (torch.randn(2, 5, 32, generator=generator).bfloat16() for _ in "cs")
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
    """Of a single row, the result lies head by head, as attention wants it; all else token by token."""

    @staticmethod
    def forward(ctx: Any, x_BHTE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
        ctx.save_for_backward(cos_TE, sin_TE)
        out_BHTE = torch.empty(x_BHTE.shape, dtype=x_BHTE.dtype) if len(x_BHTE) == 1 else _token_rows(x_BHTE)
        compiled.turn(_heads(x_BHTE), cos_TE, sin_TE, _heads(out_BHTE), back=False)
        return out_BHTE

    @staticmethod
    def backward(ctx: Any, grad_BHTE: Tensor) -> tuple[Tensor, None, None]:
        cos_TE, sin_TE = ctx.saved_tensors
        into_BHTE = _token_rows(grad_BHTE)
        compiled.turn(_heads(grad_BHTE), cos_TE, sin_TE, _heads(into_BHTE), back=True)
        return into_BHTE, None, None


def _token_rows(like_BHTE: Tensor) -> Tensor:
    """Room for a tensor of that shape, in which the heads of a token lie side by side."""
    rows, heads, tokens, width = like_BHTE.shape
    return torch.empty(rows, tokens, heads, width, dtype=like_BHTE.dtype).transpose(1, 2)


def _heads(x_BHTE: Tensor) -> Tensor:
    """[H, B x T, E], the last axis without gaps; a view wherever the rows lie token by token."""
    x_HTE = x_BHTE.transpose(0, 1).flatten(1, 2)
    return x_HTE if x_HTE.stride(-1) == 1 else x_HTE.contiguous()
