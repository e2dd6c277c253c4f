"""Which weights are trained: all of them, or small matrices beside frozen ones. One file an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.base import Registry
from galley.models.adapters.base import Adapter
from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn

registry: Registry[Adapter] = Registry("galley.models.adapters", attribute="ADAPTER", kind="adapter")

__all__ = ["Adapter", "apply", "registry"]


def apply(
    name: str,
    module: nn.Module,
    *,
    rank: int = 16,
    alpha: float = 32.0,
    dropout: float = 0.0,
    targets: str | Sequence[str] = "all-linear",
    seed: int = 0,
    on_note: Note = lambda kind, message: None,
) -> nn.Module:
    """Make the module trainable by the adapter of that name; see `Adapter.apply`.

    Trainable float16 weights are brought to float32, in which small updates are not lost.

    Raises:
        GalleyError: `name-unknown` or `adapter-targets`.
    """
    adapter = registry.get(name)
    module = adapter.apply(module, rank=rank, alpha=alpha, dropout=dropout, targets=targets, seed=seed, on_note=on_note)
    _upcast(module)
    return module


def _upcast(module: nn.Module) -> None:
    import torch

    for weight in module.parameters():
        if weight.requires_grad and weight.dtype == torch.float16:
            weight.data = weight.data.float()
