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


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("window", "before"), [(None, 0), (5, 0), (None, 16), (20, 16)])
def test_causal_softmax(window: int | None, before: int, threads: int) -> None:
    queries, keys, heads = 32, 32 + before, 3
    scores = (torch.randn(heads, queries, keys) * 5).bfloat16()
    place = torch.arange(before, keys)[:, None] - torch.arange(keys)
    hidden = (place < 0) | (place >= (window or keys))
    exact = (scores.float() * 0.3).masked_fill(hidden, float("-inf")).requires_grad_()
    truth = exact.softmax(-1)
    share, grad = scores.clone().flatten(0, 1), half(heads * queries, keys)
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled.causal_softmax(share, 0.3, queries=queries, seen_by_first=before + 1, window=window)
        near(share, truth.detach().flatten(0, 1))
        assert not share.view_as(scores)[hidden.expand_as(scores)].any()
        (by_score,) = torch.autograd.grad(truth, exact, grad.float().view_as(truth))
        compiled.softmax_gradient(grad, share, 0.3)
    finally:
        torch.set_num_threads(usual)
    torch.testing.assert_close(grad.float().view_as(by_score), 0.3 * by_score, rtol=2**-6, atol=2e-3)


def test_softmax_of_scores_far_apart() -> None:
    scores = torch.full((16, 16), -3e4).bfloat16()
    scores[:, 0], scores[5, 9] = 3e4, float("inf")
    compiled.causal_softmax(scores, 1.0, queries=16, seen_by_first=1)
    assert torch.equal(scores[:, 0], torch.ones(16).bfloat16()), "what is hidden takes no part, however large"
    assert scores[:, 1:].max() < 1e-37


@pytest.mark.parametrize(("heads", "half_width"), [(1, 8), (3, 32), (5, 12)])
def test_turn_and_back(heads: int, half_width: int) -> None:
    x = torch.randn(7, heads, 2 * half_width).bfloat16().transpose(0, 1)
    cos, sin = torch.rand(7, 2 * half_width).bfloat16(), torch.rand(7, 2 * half_width).bfloat16()
    exact = x.float().requires_grad_()
    low, high = exact.chunk(2, -1)
    truth = exact * cos.float() + torch.cat([-high, low], -1) * sin.float()
    out = torch.empty(heads, 7, 2 * half_width, dtype=torch.bfloat16)
    compiled.turn(x, cos, sin, out, back=False)
    near(out, truth.detach())
    (by_x,) = torch.autograd.grad(truth, exact, out.float())
    back = torch.empty(7, heads, 2 * half_width, dtype=torch.bfloat16).transpose(0, 1)
    compiled.turn(out, cos, sin, back, back=True)
    near(back, by_x)


def test_threads_share_rows_out_without_doing_any_twice() -> None:
    gate = half(1001, 48)
    alone, together = torch.empty_like(gate), torch.empty_like(gate)
    usual = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        compiled.silu_product(gate, gate, alone)
        torch.set_num_threads(3)
        for _ in range(50):
            compiled.silu_product(gate, gate, together.zero_())
            assert torch.equal(alone, together)
    finally:
        torch.set_num_threads(usual)
