"""The tensors that methods compute on. A language batch is packed: documents lie end to end in one row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Batch(Protocol):
    """What an engine needs to know of a micro-batch: how big it is, and how to move it."""

    @property
    def num_tokens(self) -> int:
        """Real tokens (never padding) that are computed; rows for data that has no tokens."""

    @property
    def num_rows(self) -> int:
        """Rows of the dataset in this micro-batch."""

    def to(self, device: torch.device) -> Self:
        """The same micro-batch on the device."""


@dataclass(frozen=True)
class TokenBatch:
    """Documents end to end: T tokens of D documents, of which N are learned.

    Args:
        ids_T: token ids, int64.
        positions_T: position of each token in its own document, from 0, int64.
        bounds: D + 1 offsets of the documents in 0..T; plain integers, so that no device is asked.
        target_index_N: for each learned token, the index of the token before it (whose hidden state predicts it).
        target_ids_N: the learned token ids.
    """

    ids_T: Tensor
    positions_T: Tensor
    bounds: tuple[int, ...]
    target_index_N: Tensor
    target_ids_N: Tensor

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.bounds[-1]

    @property
    def num_rows(self) -> int:
        """D."""
        return len(self.bounds) - 1

    @property
    def num_targets(self) -> int:
        """N, the supervised tokens."""
        return int(self.target_ids_N.shape[0])

    def to(self, device: torch.device) -> Self:
        """The same batch on the device."""
        return replace(
            self,
            ids_T=self.ids_T.to(device),
            positions_T=self.positions_T.to(device),
            target_index_N=self.target_index_N.to(device),
            target_ids_N=self.target_ids_N.to(device),
        )


@dataclass(frozen=True)
class LabelledBatch:
    """Rows to classify.

    Args:
        inputs: tensors by the model's argument name, first axis B, e.g. `input_ids`, `attention_mask`, or `x`.
        labels_B: class numbers, int64.
        num_tokens: real tokens in the inputs (rows for images).
    """

    inputs: dict[str, Tensor]
    labels_B: Tensor
    num_tokens: int

    @property
    def num_rows(self) -> int:
        """B."""
        return int(self.labels_B.shape[0])

    def to(self, device: torch.device) -> Self:
        """The same batch on the device."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return replace(self, inputs=inputs, labels_B=self.labels_B.to(device))
