"""One Llama-shaped decoder layer, forward and backward by hand, on the rows of one lane."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from galley.models.fast.attention import Heads, Ragged, attend, attend_backward, gather
from galley.models.fast.kernels import Gate, RmsNorm, rotate
from galley.models.fast.memory import Columns, Scratch, Slab
from galley.models.fast.projection import Projection


@dataclass(frozen=True)
class Layer:
    """Weights and facts of a decoder layer."""

    qkv: Projection
    o: Projection
    gate_up: Projection
    down: Projection
    norm: RmsNorm
    mlp_norm: RmsNorm
    query_norm: RmsNorm | None
    key_norm: RmsNorm | None
    heads: Heads
    gate: Gate
    rotary: bool
    window: int | None

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All matrices, in the order of their gradients."""
        return self.qkv, self.o, self.gate_up, self.down


@dataclass(frozen=True)
class Rows:
    """What all layers share of a lane: its documents, rotations and memory."""

    ragged: Ragged
    cos_TE: Tensor
    sin_TE: Tensor
    slab: Slab
    scratch: Scratch


@dataclass(frozen=True)
class Saved:
    """What the backward pass of one layer needs; N rows go on after attention (all, but in the last layer).

    Only what is narrow is kept. Queries, keys, values, gates and ups are computed again: they are three quarters of
    what could be kept.
    """

    x_TD: Tensor
    inverse_T1: Tensor
    o_low_NR: Tensor
    middle_ND: Tensor
    middle_inverse_N1: Tensor
    down_low_NR: Tensor


@dataclass(frozen=True)
class Attended:
    """What goes into attention."""

    vectors_FE: Tensor
    """Grouped queries, keys and values."""
    raw_THE: Tensor | None
    """Queries and keys before their norms, where there are such."""


def _keep(slab: Slab, part: Tensor) -> Tensor:
    return slab.take(*part.shape).copy_(part)


def forward(layer: Layer, x_TD: Tensor, rows: Rows, only_N: Tensor | None) -> tuple[Tensor, Saved]:
    """The layer's output.

    Args:
        layer: weights.
        x_TD: the residual stream.
        rows: of the lane.
        only_N: rows that are needed after attention; None for all.

    Returns:
        The residual stream [N, D], and what `backward` needs.
    """
    width = x_TD.shape[1]
    slab, scratch, heads = rows.slab, rows.scratch, layer.heads
    h = layer.qkv.input("in", x_TD.shape[0], scratch)
    inverse = layer.norm.forward(x_TD, h.main, scratch)
    attended = _attended(layer, h, rows)
    mixed = attend(attended.vectors_FE, rows.ragged, heads, layer.window, scratch)

    x = x_TD if only_N is None else x_TD.index_select(0, only_N)
    count = x.shape[0]
    o_in = layer.o.input("o_in", count, scratch)
    o_in.main.copy_(_token_rows(mixed, rows, heads, only_N))
    middle = layer.o.forward(o_in, slab.take(count, width), add_TO=x)
    o_low = _keep(slab, o_in.low)

    h = layer.gate_up.input("in", count, scratch)
    middle_inverse = layer.mlp_norm.forward(middle, h.main, scratch)
    gate_up = scratch.columns("gate_up", count, layer.down.width_in, layer.down.width_in)
    layer.gate_up.forward(h, gate_up.whole)
    act = layer.down.input("act", count, scratch)
    layer.gate.product(gate_up.main, gate_up.low, act.main)
    out = layer.down.forward(act, slab.take(count, width), add_TO=middle)
    down_low = _keep(slab, act.low)
    return out, Saved(x_TD, inverse, o_low, middle, middle_inverse, down_low)


def _attended(layer: Layer, normed: Columns, rows: Rows) -> Attended:
    """What goes into attention, from the room that holds the normed rows; fills its low-rank columns."""
    tokens, heads = normed.whole.shape[0], layer.heads
    qkv = rows.scratch.take("qkv", tokens + 1, layer.qkv.width_out)
    real = qkv[:-1]
    layer.qkv.forward(normed, real)
    qkv[-1].zero_()
    raw = _rotate_heads(layer, real.view(tokens, heads.all, heads.dim), rows)
    return Attended(gather(qkv, rows.ragged, heads, rows.scratch), raw)


def _token_rows(mixed_QE: Tensor, rows: Rows, heads: Heads, only_N: Tensor | None) -> Tensor:
    """What attention gave to each token (or to some), [N, query heads x dim]."""
    back = rows.ragged.back_query.view(-1, heads.query)
    if only_N is not None:
        back = back[only_N]
    return mixed_QE.index_select(0, back.flatten()).view(back.shape[0], -1)


def _rotate_heads(layer: Layer, qkv_THE: Tensor, rows: Rows) -> Tensor | None:
    """Norms of queries and keys where the family has them, then their rotation, in place."""
    heads = layer.heads
    both = qkv_THE[:, : heads.query + heads.key]
    raw = None
    if layer.query_norm is not None and layer.key_norm is not None:
        raw = rows.scratch.take("raw", *both.shape).copy_(both)
        layer.query_norm.forward(raw[:, : heads.query], both[:, : heads.query], rows.scratch)
        layer.key_norm.forward(raw[:, heads.query :], both[:, heads.query :], rows.scratch)
    if layer.rotary:
        rotate(both, rows.cos_TE, rows.sin_TE, rows.scratch)
    return raw


def backward(
    layer: Layer,
    saved: Saved,
    grad_TD: Tensor,
    rows: Rows,
    only_N: Tensor | None,
    grads: Tensor,
    need_input: bool,
) -> Tensor:
    """The gradient of the layer's input.

    Args:
        layer: weights.
        saved: from `forward`.
        grad_TD: gradient of the layer's output, [N, D] float32; used up.
        rows: of the lane.
        only_N: as in `forward`.
        grads: takes the gradients of the adapters, those of `layer.projections` one after the other.
        need_input: False in the first layer, whose input nobody learns.

    Returns:
        [T, D] float32.
    """
    parts = torch.split(grads, [projection.numel for projection in layer.projections])
    _mlp_backward(layer, saved, grad_TD, rows.scratch, parts[2], parts[3])
    tokens, width = saved.x_TD.shape
    scratch, heads = rows.scratch, layer.heads

    dy = scratch.take("d_narrow", *grad_TD.shape).copy_(grad_TD)
    inner = layer.o.width_in
    d_o = layer.o.input("d_input", dy.shape[0], scratch)
    layer.o.backward_input(dy, d_o)
    d_mixed = scratch.take("d_mixed", tokens + 1, inner)
    if only_N is None:
        d_mixed[:-1] = d_o.main
        d_mixed[-1].zero_()
    else:
        d_mixed.zero_().index_add_(0, only_N, d_o.main)
        grad_TD = scratch.take_float("d_all", tokens, width).zero_().index_add_(0, only_N, grad_TD)

    h = layer.qkv.input("in", tokens, scratch)
    layer.norm.again(saved.x_TD, saved.inverse_T1, h.main, scratch)
    attended = _attended(layer, h, rows)
    d_qkv, mixed = attend_backward(d_mixed, attended.vectors_FE, rows.ragged, heads, layer.window, scratch)
    o_in = _token_rows(mixed, rows, heads, only_N)
    layer.o.backward_factors(dy, o_in, saved.o_low_NR, d_o.low, parts[1])
    _rotate_heads_backward(layer, attended.raw_THE, d_qkv.view(tokens, heads.all, heads.dim), rows)
    dh = layer.qkv.input("d_input", tokens, scratch)
    layer.qkv.backward_input(d_qkv, dh, only_low=not need_input)
    layer.qkv.backward_factors(d_qkv, h.main, h.low, dh.low, parts[0])
    if need_input:
        layer.norm.backward(dh.main, saved.x_TD, saved.inverse_T1, grad_TD, scratch)
    return grad_TD


def _mlp_backward(
    layer: Layer, saved: Saved, grad_ND: Tensor, scratch: Scratch, gate_up_grads: Tensor, down_grads: Tensor
) -> None:
    """Adds the gradient through the MLP to `grad_ND`; gate and up are computed again."""
    count, width = grad_ND.shape
    inner = layer.down.width_in
    h = layer.gate_up.input("in", count, scratch)
    layer.mlp_norm.again(saved.middle_ND, saved.middle_inverse_N1, h.main, scratch)
    both, gate, up = scratch.columns("gate_up", count, inner, inner)
    layer.gate_up.forward(h, both)
    act = layer.gate.product(gate, up, scratch.take("act", count, inner))
    dy = scratch.take("d_narrow", count, width).copy_(grad_ND)
    d_act = layer.down.input("d_input", count, scratch)
    layer.down.backward_input(dy, d_act)
    layer.down.backward_factors(dy, act, saved.down_low_NR, d_act.low, down_grads)
    d_gate_up = scratch.columns("d_wide", count, inner, inner)
    layer.gate.backward(d_act.main, gate, up, d_gate_up, scratch)

    dh = layer.gate_up.input("d_input", count, scratch)
    layer.gate_up.backward_input(d_gate_up.whole, dh)
    layer.gate_up.backward_factors(d_gate_up.whole, h.main, h.low, dh.low, gate_up_grads)
    layer.mlp_norm.backward(dh.main, saved.middle_ND, saved.middle_inverse_N1, grad_ND, scratch)


def _rotate_heads_backward(layer: Layer, raw_THE: Tensor | None, d_qkv_THE: Tensor, rows: Rows) -> None:
    heads = layer.heads
    both = d_qkv_THE[:, : heads.query + heads.key]
    if layer.rotary:
        rotate(both, rows.cos_TE, -rows.sin_TE, rows.scratch)
    if raw_THE is None:
        return
    for norm, part in (
        (layer.query_norm, slice(0, heads.query)),
        (layer.key_norm, slice(heads.query, heads.query + heads.key)),
    ):
        assert norm is not None
        raw = raw_THE[:, part].float()
        inverse = raw.square().mean(-1, keepdim=True).add_(norm.eps).rsqrt_()
        into = torch.zeros_like(raw)
        norm.backward(both[:, part], raw, inverse, into, rows.scratch)
        both[:, part] = into
