"""Focal loss: classification that turns away from rows it already gets right, for classes of unequal size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from galley.methods import Encoding, Loss, MethodConfig

if TYPE_CHECKING:
    from galley.data.examples import ExampleKind
    from galley.models.spec import ModelKind


class FocalConfig(MethodConfig):
    """Settings of `method: focal`."""

    gamma: float = Field(2.0, ge=0, description="how strongly easy rows are played down; 0 is cross-entropy")


class Focal:
    """loss = -sum over rows of (1 - p)^gamma log p / number of rows, with p the probability of the right class.

    Source: Lin et al. 2017, "Focal loss for dense object detection", equation 4.
    """

    name: ClassVar[str] = "focal"
    tasks: ClassVar[tuple[str, ...]] = ()  # no task's default: recipes ask for it with `method: focal`
    example_kinds: ClassVar[tuple[ExampleKind, ...]] = ("labelled",)
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder", "encoder", "module")
    unit: ClassVar[str] = "rows"
    paper: ClassVar[str] = "https://arxiv.org/abs/1708.02002"
    Config: ClassVar[type[MethodConfig]] = FocalConfig

    def __init__(self, config: FocalConfig) -> None:
        self.config = config

    def needs(self) -> frozenset[Any]:
        """No other model."""
        return frozenset()

    def build(self, spec: Any, settings: Any, note: Any) -> Any:
        """A text model with a new head, or a user's module."""
        from galley.models.classifier import classifier

        return classifier(spec, settings, note)

    def encode(self, examples: Sequence[Any], encoding: Encoding) -> Any:
        """Texts as token ids, arrays as they are, with class numbers."""
        from galley.data.labelled import labelled_samples

        return labelled_samples(examples, encoding.labels, tokenizer=encoding.tokenizer, max_length=encoding.max_length)

    def batch(self, samples: Any, rows: Sequence[int]) -> Any:
        """The rows side by side."""
        return samples.batch(rows)

    def loss(self, model: Any, batch: Any) -> Loss:
        """Sum over the rows, and how many they are."""
        log_p_BC = model.class_logits(batch).log_softmax(dim=1)
        log_p_B = log_p_BC.gather(1, batch.labels_B[:, None])[:, 0]
        total = -((1 - log_p_B.exp()) ** self.config.gamma * log_p_B).sum()
        correct = float((log_p_BC.argmax(dim=1) == batch.labels_B).sum())
        return Loss(total, batch.num_rows, {"accuracy": (correct, float(batch.num_rows))})


METHOD = Focal
