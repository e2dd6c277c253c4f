"""How the documents of a batch are laid out for a model: packed, padded, or one at a time. All give the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from galley.data.batch import TokenBatch
from galley.models.network import Inputs
from galley.models.padding import groups_of_similar_length

Face: TypeAlias = Callable[[Inputs, Tensor | None], Tensor]
"""`Network.hidden` or `Network.logits`."""


class Layout(Protocol):
    """A way to run all documents of a batch."""

    name: str

    def rows(self, face: Face, batch: TokenBatch) -> Tensor:
        """What the face says at `batch.target_index_N`, [N, X]."""


class Packed:
    """All documents in one row, told apart by restarting positions, or by their lengths.

    Args:
        by_length: the attention is told the lengths; otherwise transformers masks by the positions.
    """

    def __init__(self, *, by_length: bool) -> None:
        self.by_length = by_length
        self.name = "packed, attention per document" if by_length else "packed, attention masked"

    def rows(self, face: Face, batch: TokenBatch) -> Tensor:
        """One call for everything."""
        lengths = document_lengths(batch) if self.by_length else ()
        return face(Inputs(batch.ids_T[None], batch.positions_T[None], None, lengths), batch.target_index_N)[0]


class Padded:
    """Documents of similar length in one call, padded on the right."""

    name = "padded"

    def rows(self, face: Face, batch: TokenBatch) -> Tensor:
        """One call for each group."""
        starts_D = torch.tensor(batch.bounds[:-1], device=batch.ids_T.device)
        document_N = torch.searchsorted(starts_D, batch.target_index_N, right=True) - 1
        column_N = batch.target_index_N - starts_D[document_N]
        outs, order = [], []
        for group in groups_of_similar_length(document_lengths(batch)):
            here = torch.isin(document_N, torch.tensor(group, device=document_N.device)).nonzero()[:, 0]
            row_of_D = torch.zeros_like(starts_D)
            row_of_D[list(group)] = torch.arange(len(group), device=starts_D.device)
            out_BLX = face(_padded_inputs(batch, group), None)
            outs.append(out_BLX[row_of_D[document_N[here]], column_N[here]])
            order.append(here)
        return torch.cat(outs)[torch.argsort(torch.cat(order))]


def _padded_inputs(batch: TokenBatch, group: Sequence[int]) -> Inputs:
    spans = [slice(batch.bounds[d], batch.bounds[d + 1]) for d in group]
    pad = torch.nn.utils.rnn.pad_sequence
    ids_BL = pad([batch.ids_T[span] for span in spans], batch_first=True)
    mask_BL = pad([torch.ones_like(batch.ids_T[span]) for span in spans], batch_first=True)
    positions_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device).expand_as(ids_BL)
    return Inputs(ids_BL, positions_BL, mask_BL)


class Single:
    """One document a call: right for every model."""

    name = "one document at a time"

    def rows(self, face: Face, batch: TokenBatch) -> Tensor:
        """One call for each document."""
        outs, order = [], []
        for start, end in zip(batch.bounds, batch.bounds[1:], strict=False):
            here = ((batch.target_index_N >= start) & (batch.target_index_N < end)).nonzero()[:, 0]
            inputs = Inputs(batch.ids_T[None, start:end], batch.positions_T[None, start:end])
            outs.append(face(inputs, batch.target_index_N[here] - start)[0])
            order.append(here)
        return torch.cat(outs)[torch.argsort(torch.cat(order))]


def document_lengths(batch: TokenBatch) -> tuple[int, ...]:
    """Tokens of each document."""
    return tuple(end - start for start, end in zip(batch.bounds, batch.bounds[1:], strict=False))
