"""Supervised fine-tuning: the model learns to give the answers of the data when it is asked their questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.base import GalleyError
from galley.methods.base import Encoding, Loss, MethodConfig, ModelRole, Note

if TYPE_CHECKING:
    from galley.data.batch import TokenBatch
    from galley.data.examples import Example, ExampleKind
    from galley.data.masks import TrainOn
    from galley.data.tokens import TokenSamples
    from galley.models.base import LanguageModel, ModelSettings
    from galley.models.spec import ModelKind, ModelSpec


class SftConfig(MethodConfig):
    """Settings of `method: sft`."""

    train_on: Literal["assistant", "last", "all"] = Field(
        "assistant", description="tokens that are learned: every assistant turn, the last one only, or all tokens"
    )


class Sft:
    """Cross-entropy of the assistant's tokens, each turn's closing token included.

    loss = -sum of log p(token | tokens before it) over supervised tokens / number of supervised tokens

    Source: Ouyang et al. 2022, "Training language models to follow instructions with human feedback", section 3.
    """

    name: ClassVar[str] = "sft"
    tasks: ClassVar[tuple[str, ...]] = ("chat",)
    example_kinds: ClassVar[tuple[ExampleKind, ...]] = ("conversation", "completion")
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder",)
    unit: ClassVar[str] = "supervised tokens"
    paper: ClassVar[str] = "https://arxiv.org/abs/2203.02155"
    Config: ClassVar[type[MethodConfig]] = SftConfig

    def __init__(self, config: SftConfig) -> None:
        self.config = config

    def needs(self) -> frozenset[ModelRole]:
        """No other model."""
        return frozenset()

    def build(self, spec: ModelSpec, settings: ModelSettings, note: Note) -> LanguageModel:
        """A causal language model with its adapter."""
        from galley.models.language_model import language_model

        return language_model(spec, settings, note)

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> TokenSamples:
        """Conversations through the chat template, prompts with completions as they are.

        Raises:
            GalleyError: `data-format` for documents; `data-template` and `data-empty` as `encode_examples`.
        """
        from galley.data.encode import encode_examples
        from galley.data.examples import Document

        if any(isinstance(example, Document) for example in examples):
            raise GalleyError(
                "data-format",
                "sft learns answers to questions, and these rows are documents without questions",
                hint="use `task: complete` (method pretrain) for documents",
            )
        train_on: TrainOn = "targets" if self.config.train_on == "assistant" else self.config.train_on
        return encode_examples(
            examples,
            encoding.tokenizer,
            max_length=encoding.max_length,
            train_on=train_on,
            note=encoding.note,
        )

    def batch(self, samples: Any, rows: Sequence[int]) -> TokenBatch:
        """The rows end to end."""
        from galley.data.packing import token_batch

        return token_batch(samples, rows)

    def loss(self, model: LanguageModel, batch: TokenBatch) -> Loss:
        """Sum of -log p over the supervised tokens."""
        return Loss(total=-model.token_logprobs(batch).sum(), denominator=batch.num_targets)


METHOD = Sft
