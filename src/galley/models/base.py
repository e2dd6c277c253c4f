"""What a method sees of a model: log-probabilities of learned tokens, or class scores. Nothing about devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

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

    def release(self) -> None:
        """Training is over: the module holds its weights as if nothing had been done to make it faster."""


class LanguageModel(Model, Protocol):
    """A causal language model over packed documents."""

    def token_logprobs(self, batch: TokenBatch) -> Tensor:
        """Give log p(target | its document so far) for every target, [N] float32, differentiable.

        Documents never see each other, whatever the model's family: a loaded model is checked, and documents are
        padded or run one by one where packing would leak.
        """


class ClassifierModel(Model, Protocol):
    """A model that scores classes."""

    labels: tuple[str, ...]

    def class_logits(self, batch: LabelledBatch) -> Tensor:
        """Scores of the classes, [B, C] float32, differentiable."""


@dataclass(frozen=True)
class ModelSettings:
    """How to build a model for training: the plan's decisions that concern it, as plain values.

    Args:
        precision: bf16, fp32 or fp16: numbers that weights are held and computed in.
        device: torch device on which to load.
        tuning: name of an entry of `models.adapters`: full, lora, dora, qlora.
        rank, alpha, dropout, targets: of the adapter; unused when tuning is full.
        tokenizer: a transformers tokenizer, or None for models without text.
        labels: class names for classifiers.
        input_shape: shape of a row, for models that take arrays.
    """

    precision: str
    device: str
    tuning: str
    rank: int = 0
    alpha: float = 0.0
    dropout: float = 0.0
    targets: str | tuple[str, ...] = "all-linear"
    packing: bool = True
    shared_prefix: bool = True
    fast_path: bool = True
    compile: Literal["none", "block"] = "none"
    checkpointing: Literal["none", "full"] = "none"
    seed: int = 0
    tokenizer: Any = None
    labels: tuple[str, ...] = ()
    input_shape: tuple[int, ...] = ()
