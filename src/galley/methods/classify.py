"""Classification: the model learns which of the known classes each row belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from galley.base import GalleyError
from galley.methods.base import Encoding, Loss, MethodConfig, ModelRole, Note

if TYPE_CHECKING:
    from galley.data.batch import LabelledBatch
    from galley.data.examples import Example, ExampleKind
    from galley.data.labelled import ArraySamples, TextSamples
    from galley.models.base import ModelSettings
    from galley.models.classifier import Classifier
    from galley.models.spec import ModelKind, ModelSpec


class ClassifyConfig(MethodConfig):
    """Settings of `method: classify`."""

    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target spread evenly over all classes (Szegedy et al., 2015)"
    )


class Classify:
    """Cross-entropy of the class scores, one term a row.

    loss = -sum over rows of log softmax(scores)[label] / number of rows

    Source: Goodfellow et al. 2016, "Deep Learning", section 6.2.2.3.
    """

    name: ClassVar[str] = "classify"
    tasks: ClassVar[tuple[str, ...]] = ("classify",)
    example_kinds: ClassVar[tuple[ExampleKind, ...]] = ("labelled",)
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder", "encoder", "module")
    unit: ClassVar[str] = "rows"
    paper: ClassVar[str] = "https://www.deeplearningbook.org/contents/mlp.html"
    Config: ClassVar[type[MethodConfig]] = ClassifyConfig

    def __init__(self, config: ClassifyConfig) -> None:
        self.config = config

    def needs(self) -> frozenset[ModelRole]:
        """No other model."""
        return frozenset()

    def build(self, spec: ModelSpec, settings: ModelSettings, note: Note) -> Classifier:
        """A text model with a new head, or a user's module."""
        from galley.models.classifier import classifier

        return classifier(spec, settings, note)

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> TextSamples | ArraySamples:
        """Texts as token ids, arrays as they are, with class numbers.

        Raises:
            GalleyError: `data-format` for rows without labels, and as `labelled_samples`.
        """
        from galley.data.examples import Labelled
        from galley.data.labelled import labelled_samples

        rows = [example for example in examples if isinstance(example, Labelled)]
        if len(rows) < len(examples):
            raise GalleyError(
                "data-format",
                "classify learns labels, and these rows have none",
                hint="name the column: data.columns: {input: TEXT_COLUMN, label: LABEL_COLUMN}",
            )
        return labelled_samples(rows, encoding.labels, tokenizer=encoding.tokenizer, max_length=encoding.max_length)

    def batch(self, samples: Any, rows: Sequence[int]) -> LabelledBatch:
        """The rows side by side."""
        batch: LabelledBatch = samples.batch(rows)
        return batch

    def loss(self, model: Classifier, batch: LabelledBatch) -> Loss:
        """Sum of cross-entropies over the rows, with the accuracy."""
        from torch.nn.functional import cross_entropy

        logits_BC = model.class_logits(batch)
        total = cross_entropy(logits_BC, batch.labels_B, reduction="sum", label_smoothing=self.config.label_smoothing)
        correct = float((logits_BC.argmax(dim=1) == batch.labels_B).sum())
        return Loss(total, batch.num_rows, {"accuracy": (correct, float(batch.num_rows))})


METHOD = Classify
