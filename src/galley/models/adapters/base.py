"""The seam of adapters: a transform of a loaded module that decides which weights are trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


class Adapter(Protocol):
    """One way to make a module trainable, independent of the method. A file defines `ADAPTER = TheClass()`."""

    paper: str
    quantises_base: bool
    """Load the base in 4 bits before applying."""

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
        """The module with exactly the weights that are trained requiring gradients.

        Args:
            module: as loaded; changed in place.
            rank: rank of the added matrices.
            alpha: the added product is scaled by alpha / rank.
            dropout: share of the adapter's inputs that is zeroed in training.
            targets: `all-linear`, or names of modules.
            seed: of the new weights.
            on_note: told about modules that stay as they are though one might expect otherwise.

        Raises:
            GalleyError: `adapter-targets` when a target matches no module that can be adapted.
        """
