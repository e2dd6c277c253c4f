"""DoRA: LoRA that learns the direction of each weight apart from its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.models.adapters._low_rank import add_low_rank
from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


class DoRA:
    """W becomes m (W + (alpha / rank) B A) / its column norms, with the lengths m trained too.

    Source: Liu et al., DoRA (arXiv:2402.09353).
    """

    paper = "https://arxiv.org/abs/2402.09353"
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
            module,
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            targets=targets,
            seed=seed,
            on_note=on_note,
            dora=True,
        )


ADAPTER = DoRA()
