"""log p(target) without all logits: values and gradients of plain PyTorch, whatever the chunks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from galley.models import logprobs

pytestmark = pytest.mark.unit

VOCAB, HIDDEN = 37, 8


def naive(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, scale: float, softcap: float) -> Tensor:
    logits = nn.functional.linear(hidden, weight, bias) * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def inputs(rows: int, *, bias: bool, trains: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    torch.manual_seed(rows)
    hidden = torch.randn(rows, HIDDEN, dtype=torch.float32, requires_grad=True)
    weight = torch.randn(VOCAB, HIDDEN, requires_grad=trains)
    return (
        hidden,
        weight,
        torch.randn(VOCAB, requires_grad=trains) if bias else None,
        torch.randint(VOCAB, (rows,)),
        torch.randn(rows),
    )


@pytest.mark.parametrize("rows", [0, 1, 5, 12])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, 0.0), (0.25, 0.0), (1.0, 3.0), (4.0, 2.0)])
def test_linear_logprobs_equal_log_softmax(
    rows: int, bias: bool, trains: bool, scale: float, softcap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 5 * 4 * VOCAB)  # five rows at a time
    hidden, weight, offset, targets, grad = inputs(rows, bias=bias, trains=trains)
    leaves = [x for x in (hidden, weight, offset) if x is not None and x.requires_grad]
    mine = logprobs.linear_logprobs(hidden, weight, offset, targets, scale=scale, softcap=softcap)
    truth = naive(hidden, weight, offset, targets, scale, softcap)
    torch.testing.assert_close(mine, truth)
    for got, want in zip(
        torch.autograd.grad(mine, leaves, grad), torch.autograd.grad(truth, leaves, grad), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 12])
def test_module_logprobs_reach_the_modules_own_parameters(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 5 * 4 * VOCAB)
    hidden, weight, _, targets, grad = inputs(rows, bias=False, trains=True)
    head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False))
    head[1].weight = nn.Parameter(weight.detach())
    mine = logprobs.module_logprobs(hidden, head, targets, VOCAB, scale=0.5, softcap=2.0)
    assert mine.shape == (rows,)
    if rows:
        truth = naive(head[0](hidden), head[1].weight, None, targets, 0.5, 2.0)
        torch.testing.assert_close(mine, truth)
        leaves = [hidden, *head.parameters()]
        for got, want in zip(
            torch.autograd.grad(mine, leaves, grad), torch.autograd.grad(truth, leaves, grad), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_logprobs_leave_the_logits_alone(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 5 * 4 * VOCAB)
    torch.manual_seed(0)
    logits = torch.randn(12, VOCAB).to(dtype).requires_grad_()
    before, targets, grad = logits.detach().clone(), torch.randint(VOCAB, (12,)), torch.randn(12)
    mine = logprobs.logits_logprobs(logits, targets)
    truth = logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(mine, truth)
    torch.testing.assert_close(torch.autograd.grad(mine, logits, grad)[0], torch.autograd.grad(truth, logits, grad)[0])
    assert torch.equal(logits.detach(), before)


def test_gradients_are_checked_numerically_in_double_precision() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(3, HIDDEN, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(VOCAB, HIDDEN, dtype=torch.float64)
    targets = torch.tensor([0, 5, 36])
    mine = logprobs.linear_logprobs(hidden, weight, None, targets, scale=0.7, softcap=2.0)
    truth = naive(hidden, weight, None, targets, 0.7, 2.0)
    got, want = (torch.autograd.grad(x.sum(), hidden)[0] for x in (mine, truth))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_frozen_head_never_holds_all_logits_and_a_huge_vocabulary_still_works() -> None:
    hidden = torch.randn(3, 4, requires_grad=True)
    weight = torch.randn(300_000, 4)
    targets = torch.tensor([0, 299_999, 5])
    assert logprobs.chunk_rows(300_000) * 300_000 * 4 <= logprobs.CHUNK_BYTES
    torch.testing.assert_close(
        logprobs.linear_logprobs(hidden, weight, None, targets), naive(hidden, weight, None, targets, 1.0, 0.0)
    )
