"""Attention inside each packed document only: no work across documents, and no mask of T x T."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from galley.models.grouped_attention import LONGEST, grouped_attention

NAME = "galley_documents"
"""The name under which transformers' models find this attention."""


@dataclass(frozen=True, eq=False)
class Documents:
    """Where documents lie in a row; an object of its own, so that compiled layers do not look inside it.

    Args:
        lengths: tokens of each, summing to T.
    """

    lengths: tuple[int, ...]


_packed: ContextVar[bool] = ContextVar("packed", default=False)


@contextmanager
def packed_documents() -> Iterator[None]:
    """Inside, models build no mask: the attention is told where documents begin and end instead."""
    token = _packed.set(True)
    try:
        yield
    finally:
        _packed.reset(token)


def document_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    documents: Documents | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention of each document on itself; transformers' own where no documents are named.

    Args:
        module: the attention layer.
        query: [1, heads, T, head size].
        key: [1, key-value heads, T, head size].
        value: like key.
        attention_mask: must be None when documents are named.
        scaling: factor on the scores.
        dropout: of the attention weights.
        documents: where they lie.
        **kwargs: what a family needs beyond this is refused, so that the load-time check falls back.

    Raises:
        RuntimeError: for soft caps, sinks, biases or masks made by the model.
    """
    if documents is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return out
    special = [name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None]
    if special or attention_mask is not None or query.shape[0] != 1 or kwargs.get("is_causal") is False:
        raise RuntimeError(f"document attention with {special or 'a mask'}")
    lengths = documents.lengths
    if query.device.type == "cpu" and dropout == 0.0 and max(lengths) <= LONGEST:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return grouped_attention(query, key, value, lengths, scale), None
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    # split, not slices: its backward is one concatenation instead of a zero-filled tensor per document.
    pieces = zip(*(torch.split(x, list(lengths), 2) for x in (query, key, value)), strict=True)
    outs = [functional.scaled_dot_product_attention(q, k, v, None, dropout, True, scale=scaling) for q, k, v in pieces]
    return torch.cat([out.transpose(1, 2) for out in outs], 1), None


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    return None if _packed.get() else sdpa_mask(*args, **kwargs)


def keep_uncompiled() -> None:
    """Compile layers around this attention only: its shapes change with every batch."""
    AttentionInterface.register(NAME, torch.compiler.disable(document_attention))  # type: ignore[no-untyped-call]


AttentionInterface.register(NAME, document_attention)
AttentionMaskInterface.register(NAME, _mask)
