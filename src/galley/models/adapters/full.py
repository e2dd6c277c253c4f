"""Full fine-tuning: every weight is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


class Full:
    """All weights require gradients; nothing is added, so rank and targets have no meaning."""

    paper = ""
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
        return module.requires_grad_(True)


ADAPTER = Full()
