"""What a method sees of a model: log-probabilities of learned tokens, or class scores. Nothing about devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from galley.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.batch import LabelledBatch, TokenBatch


class Model(Protocol):
    """A loaded model: a module whose trainable parameters require gradients, and its processor."""

    spec: ModelSpec
    module: nn.Module
    """Owns every parameter; what is saved. Adapters are already inside it."""
    tokenizer: Any
    """A transformers tokenizer, or None for models without text."""


class LanguageModel(Model, Protocol):
    """A causal language model over packed documents."""

    def token_logprobs(self, batch: TokenBatch) -> Tensor:
        """log p(target | its document so far) for every target, [N] float32, differentiable.

        Documents never see each other, whatever the model's family: a loaded model is checked, and documents are
        padded or run one by one where packing would leak.
        """


class ClassifierModel(Model, Protocol):
    """A model that scores classes."""

    labels: tuple[str, ...]

    def class_logits(self, batch: LabelledBatch) -> Tensor:
        """Scores of the classes, [B, C] float32, differentiable."""
