"""One way to call any causal model: token ids to hidden states, or to logits, whatever arguments its family takes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from galley.models.document_attention import Documents, packed_documents


@dataclass(frozen=True)
class Inputs:
    """Rows of tokens for one call.

    Args:
        ids: token ids, [B, L].
        positions: [B, L], position of each token in its document; None leaves it to the model.
        mask: [B, L], 1 for tokens and 0 for padding; None where all are tokens, or where documents are packed.
        lengths: tokens of each packed document, for an attention that is told; empty otherwise.
    """

    ids: Tensor
    positions: Tensor | None = None
    mask: Tensor | None = None
    lengths: tuple[int, ...] = ()


class Network:
    """A causal language model: a transformers model (adapted or not), or any module from ids to logits.

    Args:
        module: what owns the parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.inner = unwrap(module)
        self.config: Any = None
        self.body: nn.Module | None = None
        self.head: nn.Module | None = None
        if isinstance(self.inner, PreTrainedModel):
            self.config = self.inner.config.get_text_config()
            body = self.inner.base_model
            self.body = body if body is not self.inner else None
            self.head = self.inner.get_output_embeddings()
        self._logits_options = _options(self.inner)
        self._hidden_options = _options(self.body) if self.body is not None else _Options()

    @property
    def device(self) -> torch.device:
        """Where the first parameter lies."""
        return next(self.module.parameters()).device

    def hidden(self, inputs: Inputs, keep_K: Tensor | None = None) -> Tensor:
        """Last hidden states, [B, L, H], or of the columns `keep_K` only."""
        assert self.body is not None
        out = _first(self._hidden_options.call(self.body, inputs))
        return out if keep_K is None else out.index_select(1, keep_K)

    def logits(self, inputs: Inputs, keep_K: Tensor | None = None) -> Tensor:
        """The model's own logits, [B, L, V], or of the columns `keep_K` only (computed nowhere else if it can)."""
        extra = {}
        if keep_K is not None and self._logits_options.logits_to_keep:
            extra["logits_to_keep"] = keep_K
        out = _first(self._logits_options.call(self.inner, inputs, **extra))
        return out if keep_K is None or extra else out.index_select(1, keep_K)


@dataclass(frozen=True)
class _Options:
    """Which arguments a forward takes."""

    position_ids: bool = False
    attention_mask: bool = False
    use_cache: bool = False
    logits_to_keep: bool = False

    def call(self, module: Callable[..., Any], inputs: Inputs, **extra: Any) -> Any:
        if self.use_cache:
            extra["use_cache"] = False
        if inputs.positions is not None and self.position_ids:
            extra["position_ids"] = inputs.positions
        if inputs.mask is not None and self.attention_mask:
            extra["attention_mask"] = inputs.mask
        if not inputs.lengths:
            return module(inputs.ids, **extra)
        with packed_documents():
            return module(inputs.ids, documents=Documents(inputs.lengths), **extra)


def _options(module: nn.Module) -> _Options:
    parameters = inspect.signature(module.forward).parameters
    names = ("position_ids", "attention_mask", "use_cache", "logits_to_keep")
    return _Options(**{name: name in parameters for name in names})


def _first(output: Any) -> Tensor:
    """Logits or hidden states from a tensor, a tuple or an object with `.logits`."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple):
        return _first(output[0])
    logits = getattr(output, "logits", None)
    return _first(output[0] if logits is None else logits)


def unwrap(module: nn.Module) -> nn.Module:
    """The model inside a PEFT wrapper, with its adapted layers; others as they are."""
    peft = sys.modules.get("peft")
    if peft is not None and isinstance(module, peft.PeftModel):
        inner: nn.Module = module.get_base_model()
        return inner
    return module
