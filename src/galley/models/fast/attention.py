"""Causal attention of documents that lie end to end, with its backward pass; documents may share a common prefix.

Documents of similar length form a group and are computed together, padded to the longest. Vectors of heads are fetched
into the group's layout by one gather, and fetched back by another, so that padding exists nowhere else and nothing is
scattered (the sum of many into one place would depend on an order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from galley.models import compiled
from galley.models.fast.memory import Scratch
from galley.models.grouped_attention import score_gradient

_BUCKET = 16
"""A group's length is a multiple of this, so that few shapes have to be compiled."""
_BLOCK = 128
"""Queries computed at once where there are more than twice as many keys."""


@dataclass(frozen=True)
class Heads:
    """Number and size of the attention heads."""

    query: int
    key: int
    dim: int
    scale: float

    @property
    def all(self) -> int:
        """Heads of a fused query, key, value row."""
        return self.query + 2 * self.key


@dataclass(frozen=True)
class Group:
    """Documents computed together: queries are their own tokens, keys the prefix and their own tokens.

    Args:
        documents: D.
        prefix: shared tokens before each document, P.
        length: longest document without the prefix, L; the keys are K = P + L.
        query_start: where its queries begin among all queries (in vectors of a head).
        start: where its queries, keys and values begin among all vectors.
    """

    documents: int
    prefix: int
    length: int
    query_start: int
    start: int

    @property
    def keys(self) -> int:
        """K."""
        return self.prefix + self.length


@dataclass(frozen=True)
class Ragged:
    """Where each head's vector of each token goes in the grouped layout, and where it comes back from.

    Args:
        groups: all documents.
        num_tokens: T.
        fetch_F: for each grouped vector its row of [T + 1, heads] (row T is zero and stands for padding).
        fetch_query_Q: the same for the queries alone, in rows of [T + 1, query heads].
        back: for each row of [T, heads] its grouped vector.
        back_query: for each row of [T, query heads] its place among the grouped queries.
    """

    groups: tuple[Group, ...]
    num_tokens: int
    fetch_F: Tensor
    fetch_query_Q: Tensor
    back: Tensor
    back_query: Tensor
    masks: dict[tuple[int, int, int | None], Tensor] = field(default_factory=dict)
    """Filled when first needed: (prefix, length, window) -> what is added to the scores."""
    views: dict[tuple[int, int], Views] = field(default_factory=dict)
    """Likewise: (address of the grouped vectors, start of the group) -> its part of them."""


def arrange(bounds: Sequence[tuple[int, int]], prefix: int, heads: Heads, device: torch.device) -> Ragged:
    """Group the documents of a lane.

    Args:
        bounds: (start, stop) rows of each document; with a prefix, the prefix is the first of them.
        prefix: tokens of the first document that all others continue; 0 for none.
        heads: of the model.
        device: where the index lives.
    """
    tokens = bounds[-1][1]
    fetch, fetch_query, groups = [], [], []
    start = query_start = 0
    for documents, before in _grouped(bounds, prefix):
        length = -(-max(stop - first for first, stop in documents) // _BUCKET) * _BUCKET
        own_DL = torch.full((len(documents), length), tokens)
        for row, (first, stop) in enumerate(documents):
            own_DL[row, : stop - first] = torch.arange(first, stop)
        keys_DK = torch.cat((torch.arange(before).expand(len(documents), before), own_DL), 1)
        query = own_DL[:, None, :] * heads.query + torch.arange(heads.query)[:, None]
        offsets = heads.query + torch.arange(2 * heads.key).view(2, 1, heads.key, 1)
        pairs = keys_DK[None, :, None, :] * heads.all + offsets
        vectors = own_DL[:, None, :] * heads.all + torch.arange(heads.query)[:, None]
        fetch += [vectors.flatten(), pairs.flatten()]
        fetch_query.append(query.flatten())
        groups.append(Group(len(documents), before, length, query_start, start))
        query_start, start = query_start + query.numel(), start + query.numel() + pairs.numel()
    fetch_F, fetch_query_Q = torch.cat(fetch), torch.cat(fetch_query)
    back = _inverse(fetch_F, tokens * heads.all)
    back_query = _inverse(fetch_query_Q, tokens * heads.query)
    fetch_F, fetch_query_Q, back, back_query = (part.to(device) for part in (fetch_F, fetch_query_Q, back, back_query))
    return Ragged(tuple(groups), tokens, fetch_F, fetch_query_Q, back, back_query)


def _grouped(bounds: Sequence[tuple[int, int]], prefix: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Documents of similar length, and the shared tokens before them: padding stays under a fifth of a document."""
    if prefix:
        yield [bounds[0]], 0
    rest = sorted(bounds[1:] if prefix else bounds, key=lambda bound: bound[0] - bound[1])
    group: list[tuple[int, int]] = []
    for first, stop in rest:
        if group and 3 * (stop - first) < 2 * (group[0][1] - group[0][0]):
            yield group, prefix
            group = []
        group.append((first, stop))
    if group:
        yield group, prefix


def _inverse(fetch: Tensor, size: int) -> Tensor:
    """The first place that fetches each row; later ones (prefix keys of other documents) are summed by hand."""
    places = torch.arange(fetch.numel())
    real = fetch < size
    inverse = torch.full((size,), fetch.numel())
    return inverse.scatter_reduce_(0, fetch[real], places[real], "amin")


def _mask(ragged: Ragged, group: Group, window: int | None, per_key: int, like: Tensor) -> Tensor:
    """[G, L, K]: 0 where the query sees the key, -inf elsewhere, the same for each of the G query heads."""
    key = (group.prefix, group.length, window)
    if key not in ragged.masks:
        query = torch.arange(group.prefix, group.keys, device=like.device)[:, None]
        keys = torch.arange(group.keys, device=like.device)
        hidden = keys > query
        if window is not None:
            hidden |= keys <= query - window
        zeros = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        ragged.masks[key] = zeros.masked_fill_(hidden, float("-inf")).repeat(per_key, 1, 1)
    return ragged.masks[key]


@dataclass(frozen=True)
class Views:
    """A group's part of the grouped vectors; B = documents x key heads, G = query heads per key head."""

    query_BGLE: Tensor
    key_BKE: Tensor
    value_BKE: Tensor

    @classmethod
    def of(cls, vectors_FE: Tensor, ragged: Ragged, group: Group, heads: Heads) -> Views:
        """Views into the grouped vectors, or their gradients; layers share them, as they share the vectors' room."""
        key = (vectors_FE.data_ptr(), group.start)
        if key not in ragged.views:
            ragged.views[key] = cls._made(vectors_FE, group, heads)
        return ragged.views[key]

    @classmethod
    def _made(cls, vectors_FE: Tensor, group: Group, heads: Heads) -> Views:
        batch, per_key = group.documents * heads.key, heads.query // heads.key
        sizes = [batch * per_key * group.length, batch * group.keys, batch * group.keys]
        query, key, value = torch.split(vectors_FE[group.start : group.start + sum(sizes)], sizes)
        return cls(
            query.view(batch, per_key, group.length, heads.dim),
            key.view(batch, group.keys, heads.dim),
            value.view(batch, group.keys, heads.dim),
        )


def _blocks(group: Group) -> Iterator[tuple[slice, int]]:
    """Queries computed at once, and how many keys they can see."""
    if group.keys <= 2 * _BLOCK:
        yield slice(0, group.length), group.keys
        return
    for first in range(0, group.length, _BLOCK):
        last = min(first + _BLOCK, group.length)
        yield slice(first, last), group.prefix + last


def _probabilities(
    views: Views, ragged: Ragged, group: Group, block: slice, seen: int, heads: Heads, window: int | None
) -> tuple[Tensor, Tensor]:
    """Queries of the block [B, G x block, E], and their probabilities [B, G x block, seen]."""
    batch, per_key, _, dim = views.query_BGLE.shape
    query = views.query_BGLE[:, :, block].reshape(batch, -1, dim)
    if compiled.takes(query) and seen % compiled.KEYS == 0:
        share = torch.bmm(query, views.key_BKE[:, :seen].transpose(1, 2))
        sees = {"queries": block.stop - block.start, "seen_by_first": group.prefix + block.start + 1, "window": window}
        compiled.causal_softmax(share.flatten(0, 1), heads.scale, **sees)
        return query, share
    mask = _mask(ragged, group, window, per_key, query)[:, block, :seen].reshape(-1, seen)
    scores = torch.baddbmm(mask, query, views.key_BKE[:, :seen].transpose(1, 2), alpha=heads.scale)
    return query, torch.softmax(scores, -1)


def gather(rows_TH: Tensor, ragged: Ragged, heads: Heads, scratch: Scratch) -> Tensor:
    """Queries, keys and values in the grouped layout, [F, dim].

    Args:
        rows_TH: fused query, key, value rows, rotated, [T + 1, heads x dim]; the last row must be zero.
        ragged: the documents.
        heads: of the model.
        scratch: where to put them.
    """
    vectors = scratch.take("attend_in", ragged.fetch_F.numel(), heads.dim)
    return torch.index_select(rows_TH.view(-1, heads.dim), 0, ragged.fetch_F, out=vectors)


def attend(vectors_FE: Tensor, ragged: Ragged, heads: Heads, window: int | None, scratch: Scratch) -> Tensor:
    """Attention of every token to its document so far.

    Args:
        vectors_FE: from `gather`.
        ragged: the documents.
        heads: of the model.
        window: keys that a query sees at most, itself included; None for all.
        scratch: where to compute.

    Returns:
        Grouped outputs [Q, dim], to be fetched with `back_query`.
    """
    out_QE = scratch.take("attend_out", ragged.fetch_query_Q.numel(), heads.dim)
    for group in ragged.groups:
        views = Views.of(vectors_FE, ragged, group, heads)
        out = _of_group(out_QE, views, group)
        for block, seen in _blocks(group):
            _, share = _probabilities(views, ragged, group, block, seen, heads, window)
            _mix(share, views.value_BKE[:, :seen], out, block)
    return out_QE


def _of_group(rows_QE: Tensor, views: Views, group: Group) -> Tensor:
    """The group's part of the grouped outputs, [B, G, L, E]."""
    shape = views.query_BGLE.shape
    return rows_QE[group.query_start : group.query_start + shape[:3].numel()].view(shape)


def _mix(share: Tensor, value_BKE: Tensor, out_BGLE: Tensor, block: slice) -> None:
    """Values in these shares, to the block's rows of the output."""
    batch, per_key, length, dim = out_BGLE.shape
    if share.shape[1] == per_key * length:  # all at once
        torch.bmm(share, value_BKE, out=out_BGLE.view(batch, -1, dim))
    else:
        out_BGLE[:, :, block] = torch.bmm(share, value_BKE).view(batch, per_key, -1, dim)


def attend_backward(
    grad_TQ: Tensor, vectors_FE: Tensor, ragged: Ragged, heads: Heads, window: int | None, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Gradient of the fused rows; what `attend` gave is computed again, which costs less than the memory to keep it.

    Args:
        grad_TQ: gradient of the outputs, [T + 1, query heads x dim]; the last row must be zero.
        vectors_FE: from `gather`.
        ragged: the documents.
        heads: of the model.
        window: as in `attend`.
        scratch: where to compute.

    Returns:
        [T, heads x dim], and the grouped outputs of `attend`; both are valid until the next call.
    """
    out_QE = scratch.take("attend_out", ragged.fetch_query_Q.numel(), heads.dim)
    grad_QE = scratch.take("attend_grad", ragged.fetch_query_Q.numel(), heads.dim)
    torch.index_select(grad_TQ.view(-1, heads.dim), 0, ragged.fetch_query_Q, out=grad_QE)
    vectors_grad = scratch.take("attend_vectors", *vectors_FE.shape)
    for group in ragged.groups:
        views = Views.of(vectors_FE, ragged, group, heads)
        into = Views.of(vectors_grad, ragged, group, heads)
        grad, out = _of_group(grad_QE, views, group), _of_group(out_QE, views, group)
        blocks = list(_blocks(group))
        if len(blocks) > 1:
            into.key_BKE.zero_()
            into.value_BKE.zero_()
        for block, seen in blocks:
            query, share = _probabilities(views, ragged, group, block, seen, heads, window)
            _mix(share, views.value_BKE[:, :seen], out, block)
            _block_backward(views, into, query, share, grad, block, heads.scale)
    rows = scratch.take("attend_rows", ragged.num_tokens * heads.all, heads.dim)
    torch.index_select(vectors_grad, 0, ragged.back, out=rows)
    rows_THE = rows.view(ragged.num_tokens, heads.all, heads.dim)
    for group in ragged.groups:
        if group.prefix:
            _add_prefix(rows_THE, Views.of(vectors_grad, ragged, group, heads), group, heads)
    return rows_THE.view(ragged.num_tokens, -1), out_QE


def _block_backward(
    views: Views, into: Views, query: Tensor, share: Tensor, grad_BGLE: Tensor, block: slice, scale: float
) -> None:
    """Adds the gradients of one block's queries, keys and values, from its queries and probabilities."""
    batch, per_key, length, dim = grad_BGLE.shape
    seen = share.shape[2]
    key, value = views.key_BKE[:, :seen], views.value_BKE[:, :seen]
    grad = grad_BGLE[:, :, block].reshape(batch, -1, dim)
    by_share = torch.bmm(grad, value.transpose(1, 2))
    by_score = score_gradient(by_share, share, scale)
    _mix(by_score, key, into.query_BGLE, block)
    if share.shape[1] == per_key * length:  # all at once
        torch.bmm(share.transpose(1, 2), grad, out=into.value_BKE)
        torch.bmm(by_score.transpose(1, 2), query, out=into.key_BKE)
    else:
        into.value_BKE[:, :seen].baddbmm_(share.transpose(1, 2), grad)
        into.key_BKE[:, :seen].baddbmm_(by_score.transpose(1, 2), query)


def _add_prefix(rows_THE: Tensor, grads: Views, group: Group, heads: Heads) -> None:
    """Add what the group's documents ask of the shared prefix's keys and values."""
    for offset, part_BKE in ((heads.query, grads.key_BKE), (heads.query + heads.key, grads.value_BKE)):
        shared = part_BKE.view(group.documents, heads.key, group.keys, heads.dim)[:, :, : group.prefix]
        rows_THE[: group.prefix, offset : offset + heads.key] += shared.sum(0).transpose(0, 1)
