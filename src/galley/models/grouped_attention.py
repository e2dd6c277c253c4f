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

from galley.models import compiled
from galley.models.padding import groups_of_similar_length

LONGEST = 256
"""Documents beyond this have scores that are better never written down."""


@dataclass(frozen=True)
class Group:
    """Documents computed together.

    Args:
        queries: the group's part of `Plan.fetch_query`, in the order [key head, document, query head, position].
        keys: the group's part of `Plan.fetch_key`, in the order [key head, document, position].
        batch: key heads x documents.
        length: longest document, L.
    """

    queries: slice
    keys: slice
    batch: int
    length: int


@dataclass(frozen=True)
class Plan:
    """Where each head's vector of each token goes; made once for all layers.

    Args:
        groups: of documents.
        fetch_query: rows of [heads x T] in the order of the groups, one group after the other; padding fetches any.
        fetch_key: rows of [key heads x T] likewise.
        padding_query: places in `fetch_query` that are padding.
        back_query: place in `fetch_query` of each row of [heads x T].
        back_key: place in `fetch_key` of each row of [key heads x T].
    """

    groups: tuple[Group, ...]
    fetch_query: Tensor
    fetch_key: Tensor
    padding_query: Tensor
    back_query: Tensor
    back_key: Tensor


@lru_cache(maxsize=8)
def arrange(lengths: tuple[int, ...], heads: int, key_heads: int, device: torch.device) -> Plan:
    """Groups of documents of these lengths, and the ways there and back."""
    tokens, starts = sum(lengths), [sum(lengths[:d]) for d in range(len(lengths))]
    groups: list[Group] = []
    queries, keys, real_queries, real_keys = (list[Tensor]() for _ in range(4))
    head_HG = torch.arange(heads).view(key_heads, -1)
    for members in groups_of_similar_length(lengths):
        longest = -(-lengths[members[0]] // compiled.KEYS) * compiled.KEYS
        start_D, length_D = torch.tensor([(starts[d], lengths[d]) for d in members]).unbind(1)
        column_L = torch.arange(longest)
        real_DL = column_L < length_D[:, None]
        token_DL = torch.where(real_DL, start_D[:, None] + column_L, start_D[:, None])
        query = head_HG[:, None, :, None] * tokens + token_DL[None, :, None, :]
        key = torch.arange(key_heads)[:, None, None] * tokens + token_DL
        real_queries.append(real_DL[None, :, None, :].expand_as(query).flatten())
        real_keys.append(real_DL.expand_as(key).flatten())
        at_query, at_key = (sum(part.numel() for part in parts) for parts in (queries, keys))
        queries.append(query.flatten())
        keys.append(key.flatten())
        of_queries, of_keys = slice(at_query, at_query + query.numel()), slice(at_key, at_key + key.numel())
        groups.append(Group(of_queries, of_keys, key_heads * len(members), longest))
    fetch_query, real_query = torch.cat(queries), torch.cat(real_queries)
    fetch_key, real_key = torch.cat(keys), torch.cat(real_keys)
    indices = (fetch_query, fetch_key, (~real_query).nonzero()[:, 0], _back(fetch_query, real_query))
    return Plan(tuple(groups), *(index.to(device) for index in (*indices, _back(fetch_key, real_key))))


def _back(fetch: Tensor, real: Tensor) -> Tensor:
    """Where among the fetched rows each row is."""
    places = real.nonzero()[:, 0]
    return torch.empty_like(places).index_copy_(0, fetch[places], places)


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
    plan = arrange(lengths, query.shape[1], key.shape[1], query.device)
    rows = [x.reshape(-1, x.shape[-1]) for x in (query, key, value)]
    out: Tensor = _Grouped.apply(*rows, plan, scale)  # type: ignore[no-untyped-call]
    return out.view(1, query.shape[1], query.shape[2], -1).transpose(1, 2)


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float) -> Tensor:
        fetched = _fetch(query, key, value, plan)
        out = query.new_empty(len(plan.fetch_query), value.shape[1])
        shares = []
        for group in plan.groups:
            q, k, v = _of_group(group, *fetched)
            shares.append(_shares(q, k, scale))
            torch.bmm(shares[-1], v, out=_part(out, group.queries, group.batch))
        ctx.save_for_backward(query, key, value, *shares)
        ctx.plan, ctx.scale = plan, scale
        return out.index_select(0, plan.back_query)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *shares = ctx.saved_tensors
        plan: Plan = ctx.plan
        fetched = _fetch(query, key, value, plan)
        grads = grad.index_select(0, plan.fetch_query)
        grads.index_fill_(0, plan.padding_query, 0)  # padding must push nothing back
        into = [torch.empty_like(part) for part in fetched]
        for group, p in zip(plan.groups, shares, strict=True):
            q, k, v = _of_group(group, *fetched)
            d_q, d_k, d_v = _of_group(group, *into)
            g = _part(grads, group.queries, group.batch)
            torch.bmm(p.transpose(1, 2), g, out=d_v)
            d_s = score_gradient(torch.bmm(g, v.transpose(1, 2)), p, ctx.scale)
            torch.bmm(d_s, k, out=d_q)
            torch.bmm(d_s.transpose(1, 2), q, out=d_k)
        back = (plan.back_query, plan.back_key, plan.back_key)
        return *(part.index_select(0, rows) for part, rows in zip(into, back, strict=True)), None, None


def _shares(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Softmax of the scores of each query for the keys up to its own, [batch, query heads x L, L]."""
    if compiled.takes(query, key):
        share = torch.bmm(query, key.transpose(1, 2))
        compiled.causal_softmax(share.flatten(0, 1), scale, queries=key.shape[1], seen_by_first=1)
        return share
    mask = _causal(key.shape[1], query.shape[1] // key.shape[1], query.dtype, query.device)
    return torch.softmax(torch.baddbmm(mask, query, key.transpose(1, 2), alpha=scale), -1)


def score_gradient(grad: Tensor, share: Tensor, scale: float) -> Tensor:
    """The gradient by the unscaled scores; that by the shares is used up."""
    if compiled.takes(grad, share):
        compiled.softmax_gradient(grad.flatten(0, 1), share.flatten(0, 1), scale)
        return grad
    return torch._softmax_backward_data(grad, share, -1, share.dtype).mul_(scale)


def _fetch(query: Tensor, key: Tensor, value: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """The vectors in the order of the groups."""
    keys, values = key.index_select(0, plan.fetch_key), value.index_select(0, plan.fetch_key)
    return query.index_select(0, plan.fetch_query), keys, values


def _of_group(group: Group, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A group's queries [batch, query heads x L, E], keys [batch, L, E] and values."""
    parts = ((query, group.queries), (key, group.keys), (value, group.keys))
    q, k, v = (_part(vectors, rows, group.batch) for vectors, rows in parts)
    return q, k, v


def _part(vectors: Tensor, rows: slice, batch: int) -> Tensor:
    return vectors[rows].view(batch, -1, vectors.shape[1])
