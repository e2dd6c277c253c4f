"""Compiled loops against the same in float32, on views of wider rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from galley.models import compiled

pytestmark = pytest.mark.skipif(not compiled.usable(), reason="numba is not installed")

SIZES = [(1, 8), (5, 24), (33, 96)]


def half(*shape: int) -> Tensor:
    """A view of wider rows."""
    return torch.randn(shape[0], shape[1] + 16).bfloat16()[:, : shape[1]]


def near(mine: Tensor, truth: Tensor) -> None:
    torch.testing.assert_close(mine.float(), truth, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("rows", "width"), SIZES)
def test_norm(rows: int, width: int) -> None:
    x, weight, grad = half(rows, width), torch.rand(width), half(rows, width)
    exact = x.float().requires_grad_()
    truth = exact * (exact.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
    out, again, into = half(rows, width), half(rows, width), torch.ones(rows, width)
    inverse = compiled.norm(x, weight, 1e-5, out)
    compiled.norm_again(x, inverse, weight, again)
    near(out, truth.detach())
    assert torch.equal(out, again)
    (by_x,) = torch.autograd.grad(truth, exact, grad.float())
    compiled.norm_backward(grad, x, inverse, weight, into)
    torch.testing.assert_close(into, 1 + by_x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "width"), SIZES)
def test_silu_product(rows: int, width: int) -> None:
    both = torch.randn(rows, 2 * width).bfloat16() * 8
    both[0, 0], both[0, 1] = -200.0, 200.0
    gate, up, grad = both[:, :width], both[:, width:], half(rows, width)
    exact = [part.float().requires_grad_() for part in (gate, up)]
    truth = functional.silu(exact[0]) * exact[1]
    out = half(rows, width)
    compiled.silu_product(gate, up, out)
    near(out, truth.detach())
    by_gate, by_up = torch.autograd.grad(truth, exact, grad.float())
    d_both = torch.empty_like(both)
    compiled.silu_product_backward(grad, gate, up, d_both[:, :width], d_both[:, width:])
    torch.testing.assert_close(d_both[:, :width].float(), by_gate, rtol=2**-8, atol=1e-4)
    near(d_both[:, width:], by_up)


def test_rotate() -> None:
    x = torch.randn(7, 5, 16).bfloat16()
    view, truth = x.clone()[:, :3], x[:, :3].float()
    cos, sin = torch.rand(7, 1, 8).bfloat16(), torch.rand(7, 1, 8).bfloat16()
    low, high = truth[..., :8], truth[..., 8:]
    compiled.rotate(view, cos, sin)
    near(view, torch.cat([low * cos.float() - high * sin.float(), high * cos.float() + low * sin.float()], -1))


def test_bfloat16_rounds_as_torch_does() -> None:
    x = torch.cat([torch.randn(4, 64), torch.linspace(-2, 2, 64)[None]]).bfloat16()
    weight = torch.full((64,), 1.00390625)
    out = torch.empty_like(x)
    compiled.norm_again(x, torch.ones(5, 1), weight, out)
    assert torch.equal(out, (x.float() * weight).bfloat16())
