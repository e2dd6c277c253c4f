"""Grouped attention of ragged documents equals attention of each document alone, whatever their lengths."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from galley.models.fast import attention
from galley.models.fast.attention import Heads, arrange, attend, attend_backward, gather
from galley.models.fast.memory import Scratch

pytestmark = pytest.mark.unit

HEADS = Heads(query=4, key=2, dim=8, scale=0.3)
CPU = torch.device("cpu")


def reference(rows_TH: Tensor, bounds: list[tuple[int, int]], prefix: int, window: int | None) -> Tensor:
    """PyTorch's attention, one document at a time, the prefix put before each."""
    outputs = []
    for number, (first, stop) in enumerate(bounds):
        before = prefix if prefix and number else 0
        rows = torch.cat((rows_TH[:before], rows_TH[first:stop])).view(-1, HEADS.all, HEADS.dim).transpose(0, 1)
        query, key, value = torch.split(rows, [HEADS.query, HEADS.key, HEADS.key])
        places = torch.arange(rows.shape[1])
        seen = places <= places[:, None]
        if window is not None:
            seen &= places > places[:, None] - window
        out = F.scaled_dot_product_attention(query, key, value, seen, scale=HEADS.scale, enable_gqa=True)
        outputs.append(out[:, before:].transpose(0, 1).reshape(stop - first, -1))
    return torch.cat(outputs)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    prefix=st.integers(0, 5),
    window=st.sampled_from([None, 1, 4]),
    block=st.sampled_from([3, 128]),
)
def test_equals_each_document_alone(lengths: list[int], prefix: int, window: int | None, block: int) -> None:
    torch.manual_seed(0)
    edges = torch.tensor([0, *([prefix] if prefix else []), *lengths]).cumsum(0).tolist()
    bounds = list(pairwise(edges))
    rows = torch.randn(edges[-1], HEADS.all * HEADS.dim, requires_grad=True)
    truth = reference(rows, bounds, prefix, window)
    grad = torch.randn_like(truth)
    (true_grad,) = torch.autograd.grad(truth, rows, grad)

    zero = torch.zeros(1, rows.shape[1])
    scratch = Scratch(torch.float32, CPU)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(attention, "_BLOCK", block)
        ragged = arrange(bounds, prefix, HEADS, CPU)
        vectors = gather(torch.cat((rows, zero)), ragged, HEADS, scratch)
        out = attend(vectors, ragged, HEADS, window, scratch)
        torch.testing.assert_close(out[ragged.back_query].view_as(truth), truth)
        padded = torch.cat((grad, zero[:, : grad.shape[1]]))
        mine, again = attend_backward(padded, vectors, ragged, HEADS, window, scratch)
        torch.testing.assert_close(again[ragged.back_query].view_as(truth), truth)
    torch.testing.assert_close(mine, true_grad)
