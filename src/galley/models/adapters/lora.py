"""LoRA: frozen weights, and beside each linear layer the trained product of two small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.models.adapters._low_rank import add_low_rank
from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


class LoRA:
    """W x becomes W x + (alpha / rank) B A x, with B = 0 at the start.

    Source: Hu et al., LoRA (arXiv:2106.09685).
    """

    paper = "https://arxiv.org/abs/2106.09685"
    quantises_base = False

    def apply(
        self,
        module: nn.Module,
        *,
        rank: int,
        alpha: float,
        dropout: float,
        targets: str | Sequence[str],
        seed: int,
        on_note: Note,
    ) -> nn.Module:
        """See `Adapter.apply`."""
        return add_low_rank(
            module, rank=rank, alpha=alpha, dropout=dropout, targets=targets, seed=seed, on_note=on_note
        )


ADAPTER = LoRA()
