"""Pretraining: the model learns to continue text, every token from the tokens before it in its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.base import GalleyError
from galley.methods.base import Encoding, Loss, MethodConfig, ModelRole, Note

if TYPE_CHECKING:
    from galley.data.batch import TokenBatch
    from galley.data.examples import Example, ExampleKind
    from galley.data.tokens import TokenSamples
    from galley.models.base import LanguageModel, ModelSettings
    from galley.models.spec import ModelKind, ModelSpec


class PretrainConfig(MethodConfig):
    """Settings of `method: pretrain`."""

    train_on: Literal["completion", "all"] = Field(
        "all", description="tokens that are learned in rows with a prompt: the completion only, or all tokens"
    )


class Pretrain:
    """Cross-entropy of every token of a document but its first, its end-of-sequence token included.

    loss = -sum of log p(token | tokens before it in its document) / number of such tokens

    Documents longer than the limit are learned in pieces; every token is learned once.

    Source: Radford et al. 2018, "Improving language understanding by generative pre-training", equation 1.
    """

    name: ClassVar[str] = "pretrain"
    tasks: ClassVar[tuple[str, ...]] = ("complete",)
    example_kinds: ClassVar[tuple[ExampleKind, ...]] = ("document", "completion")
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder",)
    unit: ClassVar[str] = "supervised tokens"
    paper: ClassVar[str] = (
        "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"
    )
    Config: ClassVar[type[MethodConfig]] = PretrainConfig

    def __init__(self, config: PretrainConfig) -> None:
        self.config = config

    def needs(self) -> frozenset[ModelRole]:
        """No other model."""
        return frozenset()

    def build(self, spec: ModelSpec, settings: ModelSettings, note: Note) -> LanguageModel:
        """A causal language model, with its adapter if it has one."""
        from galley.models.language_model import language_model

        return language_model(spec, settings, note)

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> TokenSamples:
        """Documents with their opening and closing tokens; prompts with completions likewise.

        Raises:
            GalleyError: `data-format` for conversations; `data-empty` as `encode_examples`.
        """
        from galley.data.encode import encode_examples
        from galley.data.examples import Conversation

        if any(isinstance(example, Conversation) for example in examples):
            raise GalleyError(
                "data-format",
                "pretrain learns plain text, and these rows are conversations",
                hint="use `task: chat` (method sft) for conversations",
            )
        return encode_examples(
            examples,
            encoding.tokenizer,
            max_length=encoding.max_length,
            train_on="all" if self.config.train_on == "all" else "targets",
            note=encoding.note,
        )

    def batch(self, samples: Any, rows: Sequence[int]) -> TokenBatch:
        """The documents end to end."""
        from galley.data.packing import token_batch

        return token_batch(samples, rows)

    def loss(self, model: LanguageModel, batch: TokenBatch) -> Loss:
        """Sum of -log p over the supervised tokens."""
        return Loss(total=-model.token_logprobs(batch).sum(), denominator=batch.num_targets)


METHOD = Pretrain
