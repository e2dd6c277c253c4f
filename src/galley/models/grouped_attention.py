"""Attention of many short documents on a CPU: a few batched products for all of them, backward pass by hand.

Flash attention pays for long documents; called once for each short one it takes most of a step. Documents of similar
length are therefore gathered into groups, padded on the right. Padding does no harm: a real token never sees a later
one, and what comes out at padding is not fetched back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from galley.models.padding import groups_of_similar_length

LONGEST = 256
"""Documents beyond this have scores that are better never written down."""


@dataclass(frozen=True)
class Group:
    """Documents computed together.

    Args:
        fetch_query: rows of [heads x T] in the order [key head, document, query head of that key head, position].
        fetch_key: rows of [key heads x T] in the order [key head, document, position].
        back_query: places in the group's query order of the rows in `rows_query`.
        back_key: the same for keys.
        rows_query: rows of [heads x T] that belong to the group's documents.
        rows_key: the same for keys.
        batch: key heads x documents.
        length: longest document, L.
    """

    fetch_query: Tensor
    fetch_key: Tensor
    back_query: Tensor
    back_key: Tensor
    rows_query: Tensor
    rows_key: Tensor
    batch: int
    length: int


@lru_cache(maxsize=8)
def arrange(lengths: tuple[int, ...], heads: int, key_heads: int, device: torch.device) -> tuple[Group, ...]:
    """Where each head's vector of each token goes; made once for all layers."""
    tokens, starts = sum(lengths), [sum(lengths[:d]) for d in range(len(lengths))]
    per_key = heads // key_heads
    groups = []
    for members in groups_of_similar_length(lengths):
        longest = lengths[members[0]]
        start_D, length_D = torch.tensor([(starts[d], lengths[d]) for d in members]).unbind(1)
        column_L = torch.arange(longest)
        real_DL = column_L < length_D[:, None]
        token_DL = torch.where(real_DL, start_D[:, None] + column_L, start_D[:, None])
        head_HG = torch.arange(heads).view(key_heads, per_key)
        query = head_HG[:, None, :, None] * tokens + token_DL[None, :, None, :]
        key = torch.arange(key_heads)[:, None, None] * tokens + token_DL
        back_query = real_DL[None, :, None, :].expand_as(query).flatten().nonzero()[:, 0]
        back_key = real_DL.expand_as(key).flatten().nonzero()[:, 0]
        query, key = query.flatten(), key.flatten()
        index = (query, key, back_query, back_key, query[back_query], key[back_key])
        query, key, back_query, back_key, rows_query, rows_key = (part.to(device) for part in index)
        batch = key_heads * len(members)
        groups.append(Group(query, key, back_query, back_key, rows_query, rows_key, batch, longest))
    return tuple(groups)


@lru_cache(maxsize=32)
def _causal(length: int, per_key: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[per_key x L, L]: 0 where a query sees a key, -inf where it does not."""
    mask = torch.full((length, length), float("-inf"), dtype=dtype, device=device).triu(1)
    return mask.repeat(per_key, 1)


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...], scale: float) -> Tensor:
    """Causal attention of each document on itself.

    Args:
        query: [1, heads, T, head size].
        key: [1, key heads, T, head size].
        value: [1, key heads, T, value size].
        lengths: tokens of each document, summing to T.
        scale: factor on the scores.

    Returns:
        [1, T, heads, value size].
    """
    groups = arrange(lengths, query.shape[1], key.shape[1], query.device)
    rows = [x.reshape(-1, x.shape[-1]) for x in (query, key, value)]
    out: Tensor = _Grouped.apply(*rows, groups, scale)  # type: ignore[no-untyped-call]
    return out.view(1, query.shape[1], query.shape[2], -1).transpose(1, 2)


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, groups: tuple[Group, ...], scale: float) -> Tensor:
        out = query.new_empty(query.shape[0], value.shape[1])
        saved = []
        for group in groups:
            q, k, v = _gather(query, key, value, group)
            mask = _causal(group.length, q.shape[1] // group.length, q.dtype, q.device)
            p = torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale), -1)
            result = torch.bmm(p, v).view(-1, v.shape[2])
            out.index_copy_(0, group.rows_query, result.index_select(0, group.back_query))
            saved += [p]
        ctx.save_for_backward(query, key, value, *saved)
        ctx.groups, ctx.scale = groups, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *saved = ctx.saved_tensors
        d_query, d_key, d_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        for group, p in zip(ctx.groups, saved, strict=True):
            q, k, v = _gather(query, key, value, group)
            g = grad.new_zeros(len(group.fetch_query), grad.shape[1])  # padding must push nothing back
            g = g.index_copy_(0, group.back_query, grad.index_select(0, group.rows_query)).view(*q.shape[:2], -1)
            d_v = torch.bmm(p.transpose(1, 2), g)
            d_p = torch.bmm(g, v.transpose(1, 2))
            d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype).mul_(ctx.scale)
            d_q, d_k = torch.bmm(d_s, k), torch.bmm(d_s.transpose(1, 2), q)
            for whole, rows, part, back in (
                (d_query, group.rows_query, d_q, group.back_query),
                (d_key, group.rows_key, d_k, group.back_key),
                (d_value, group.rows_key, d_v, group.back_key),
            ):
                whole.index_copy_(0, rows, part.view(-1, part.shape[2]).index_select(0, back))
        return d_query, d_key, d_value, None, None


def _gather(query: Tensor, key: Tensor, value: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    q = query.index_select(0, group.fetch_query).view(group.batch, -1, query.shape[1])
    k = key.index_select(0, group.fetch_key).view(group.batch, group.length, -1)
    return q, k, value.index_select(0, group.fetch_key).view(group.batch, group.length, -1)
