"""QLoRA: LoRA beside weights that are frozen in 4 bits (NF4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.models.adapters._low_rank import add_low_rank
from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


class QLoRA:
    """LoRA over a base that was loaded in 4 bits; merging goes back to the unquantised base.

    Source: Dettmers et al., QLoRA (arXiv:2305.14314).
    """

    paper = "https://arxiv.org/abs/2305.14314"
    quantises_base = True

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
            module,
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            targets=targets,
            seed=seed,
            on_note=on_note,
            quantised=True,
        )


ADAPTER = QLoRA()
