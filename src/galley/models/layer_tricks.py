"""Trades on whole decoder layers: recompute them in the backward pass, or compile one and reuse it for all."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from transformers import PreTrainedModel

from galley.models import document_attention
from galley.models.network import Network


def checkpoint_layers(network: Network, on_note: Callable[[str, str], None]) -> None:
    """Keep only each layer's input while training; said and skipped where the family cannot.

    Args:
        network: the model.
        on_note: hears when it is not possible.
    """
    inner = network.inner
    if isinstance(inner, PreTrainedModel) and inner.supports_gradient_checkpointing:
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        on_note("fallback", f"{type(inner).__name__} cannot recompute its layers; all activations are kept")


def compile_layers(network: Network, on_note: Callable[[str, str], None]) -> None:
    """Compile the repeated layer of the model: one compilation serves all layers and all lengths.

    Args:
        network: the model.
        on_note: hears when there is no repeated layer.
    """
    layers = repeated_layers(network.inner)
    if not layers:
        on_note("fallback", f"{type(network.inner).__name__} has no repeated layer to compile")
    document_attention.keep_uncompiled()
    for layer in layers:
        layer.compile(dynamic=True)


def repeated_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of the largest list of layers in the module."""
    lists = [list(m) for m in module.modules() if isinstance(m, nn.ModuleList)]
    return max(lists, key=lambda layers: sum(p.numel() for layer in layers for p in layer.parameters()), default=[])
