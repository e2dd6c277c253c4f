"""log p(target) from hidden states without ever holding all logits: chunks, float32 softmax, exact gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = 64 * 2**20
"""Float32 logits that exist at one time."""


def chunk_rows(vocab: int) -> int:
    """Rows of logits that fit into `CHUNK_BYTES`."""
    return max(1, CHUNK_BYTES // (4 * vocab))


def linear_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    scale: float = 1.0,
    softcap: float = 0.0,
) -> Tensor:
    """Give log softmax(cap(scale * (h W^T + b)))[target] for every row, [N] float32.

    With a frozen head the Jacobian of each row, which is only [N, H], is computed with the logits still at hand, so
    that the backward pass needs no second look at the vocabulary. A trainable head recomputes the logits instead.

    Args:
        hidden_NH: hidden states that predict the targets.
        weight_VH: output embedding.
        bias_V: its bias.
        targets_N: token ids, int64.
        scale: factor on the logits.
        softcap: logits become `softcap * tanh(logits / softcap)`; 0 is off.
    """
    args = (hidden_NH, weight_VH, bias_V, targets_N, scale, softcap)
    result: Tensor = _LinearLogprobs.apply(*args, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return result


class _LinearLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        scale: float,
        softcap: float,
        grad: bool,
    ) -> Tensor:
        ctx.scale, ctx.softcap = scale, softcap
        ctx.head_trains = grad and (ctx.needs_input_grad[1] or ctx.needs_input_grad[2])
        row_wise = grad and ctx.needs_input_grad[0] and not ctx.head_trains
        out_N = torch.empty(len(hidden_NH), dtype=torch.float32, device=hidden_NH.device)
        lse_N, jacobian_NH = torch.empty_like(out_N), torch.empty_like(hidden_NH) if row_wise else None
        for rows in _chunks(len(hidden_NH), len(weight_VH)):
            logits_CV, target_C = _logits(hidden_NH[rows], weight_VH, bias_V, scale, softcap), targets_N[rows, None]
            lse_N[rows] = torch.logsumexp(logits_CV, -1)
            out_N[rows] = logits_CV.gather(1, target_C)[:, 0] - lse_N[rows]
            if jacobian_NH is not None:
                d_CV = _logit_grad(logits_CV, lse_N[rows], target_C, scale, softcap)
                torch.mm(d_CV.to(weight_VH.dtype), weight_VH, out=jacobian_NH[rows])
        if jacobian_NH is not None:
            ctx.save_for_backward(jacobian_NH)
        elif ctx.head_trains:
            ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, lse_N)
        return out_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.head_trains:
            (jacobian_NH,) = ctx.saved_tensors
            return (jacobian_NH * grad_N[:, None]).to(jacobian_NH.dtype), None, None, None, None, None, None
        hidden_NH, weight_VH, bias_V, targets_N, lse_N = ctx.saved_tensors
        d_hidden_NH = torch.empty_like(hidden_NH)
        d_weight_VH = torch.zeros_like(weight_VH) if ctx.needs_input_grad[1] else None
        d_bias_V = torch.zeros_like(bias_V) if ctx.needs_input_grad[2] else None
        for rows in _chunks(len(hidden_NH), len(weight_VH)):
            logits_CV = _logits(hidden_NH[rows], weight_VH, bias_V, ctx.scale, ctx.softcap)
            d_CV = _logit_grad(logits_CV, lse_N[rows], targets_N[rows, None], ctx.scale, ctx.softcap)
            d_CV = d_CV.mul_(grad_N[rows, None]).to(weight_VH.dtype)
            torch.mm(d_CV, weight_VH, out=d_hidden_NH[rows])
            if d_weight_VH is not None:
                d_weight_VH.addmm_(d_CV.T, hidden_NH[rows])
            if d_bias_V is not None:
                d_bias_V.add_(d_CV.sum(0))
        return d_hidden_NH, d_weight_VH, d_bias_V, None, None, None, None


def _chunks(rows: int, vocab: int) -> list[slice]:
    size = chunk_rows(vocab)
    return [slice(start, start + size) for start in range(0, rows, size)]


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: float, softcap: float) -> Tensor:
    return transform(functional.linear(hidden, weight, bias).float(), scale, softcap)


def transform(logits: Tensor, scale: float, softcap: float) -> Tensor:
    """What some families do to logits after the head: a factor (Cohere, Granite), a soft cap (Gemma 2)."""
    if scale != 1.0:
        logits = logits * scale
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def _logit_grad(logits_CV: Tensor, lse_C: Tensor, target_C1: Tensor, scale: float, softcap: float) -> Tensor:
    """Gradient of log p(target) by the (output of the head); overwrites the logits where it can."""
    slope = scale * (1 - (logits_CV / softcap).square()) if softcap else scale
    grad_CV = logits_CV.sub_(lse_C[:, None]).exp_().neg_()
    grad_CV.scatter_add_(1, target_C1, torch.ones_like(target_C1, dtype=grad_CV.dtype))
    return grad_CV.mul_(slope) if softcap or scale != 1.0 else grad_CV


def module_logprobs(
    hidden_NH: Tensor, head: Callable[[Tensor], Tensor], targets_N: Tensor, vocab: int, *, scale: float, softcap: float
) -> Tensor:
    """The same through any head module (adapted or quantised): its logits are recomputed chunk by chunk.

    Args:
        hidden_NH: hidden states that predict the targets.
        head: hidden states to logits.
        targets_N: token ids, int64.
        vocab: width of the logits.
        scale: factor on the logits.
        softcap: as in `linear_logprobs`.
    """

    def piece(hidden_CH: Tensor, targets_C: Tensor) -> Tensor:
        return logits_logprobs(transform(head(hidden_CH), scale, softcap), targets_C)

    parts = [
        checkpoint(piece, hidden_NH[rows], targets_N[rows], use_reentrant=False)
        for rows in _chunks(len(hidden_NH), vocab)
    ]
    return torch.cat(parts) if parts else hidden_NH.float().sum() * hidden_NH.new_zeros(0, dtype=torch.float32)


def logits_logprobs(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Give log softmax(logits)[target] in float32 for logits that exist already, [N]; float32 copies only in chunks."""
    result: Tensor = _LogitsLogprobs.apply(logits_NV, targets_N)  # type: ignore[no-untyped-call]
    return result


class _LogitsLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        out_N = torch.empty(len(logits_NV), dtype=torch.float32, device=logits_NV.device)
        lse_N = torch.empty_like(out_N)
        for rows in _chunks(*logits_NV.shape):
            chunk_CV = logits_NV[rows].float()
            lse_N[rows] = torch.logsumexp(chunk_CV, -1)
            out_N[rows] = chunk_CV.gather(1, targets_N[rows, None])[:, 0] - lse_N[rows]
        ctx.save_for_backward(logits_NV, targets_N, lse_N)
        return out_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None]:
        logits_NV, targets_N, lse_N = ctx.saved_tensors
        out_NV = torch.empty_like(logits_NV)
        for rows in _chunks(*logits_NV.shape):
            # `+ 0` makes a copy where the logits are float32 already: the gradient is computed in place.
            d_CV = _logit_grad(logits_NV[rows].float() + 0, lse_N[rows], targets_N[rows, None], 1.0, 0.0)
            out_NV[rows] = d_CV.mul_(grad_N[rows, None])
        return out_NV, None
