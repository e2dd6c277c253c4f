"""Models that score classes: a text encoder or decoder with a new head, or a user's own module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from galley.models import adapters
from galley.models.base import ModelSettings
from galley.models.loading import LoadPrecision, Note, load
from galley.models.spec import ModelSpec
from galley.models.trial_pass import check_class_scores

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.batch import LabelledBatch


class Classifier:
    """A `ClassifierModel` over a loaded module.

    Args:
        spec: what the model is; its kind decides how scores are read from it.
        module: owns the parameters, adapters included.
        tokenizer: None for models without text.
        labels: names of the classes, in the order of the scores.
    """

    def __init__(self, spec: ModelSpec, module: nn.Module, tokenizer: Any, labels: tuple[str, ...]) -> None:
        self.spec, self.module, self.tokenizer, self.labels = spec, module, tokenizer, labels
        self._scores: Any = module
        inner: Any = module
        if spec.kind != "module":
            if _is_peft(module):
                inner = inner.get_base_model()
            if tokenizer is not None:  # other tools find the last token by it
                inner.config.pad_token_id = tokenizer.pad_token_id
        self._inner = inner

    def release(self) -> None:
        """Nothing to give back."""

    def class_logits(self, batch: LabelledBatch) -> Tensor:
        """Scores of the classes, [B, C] float32."""
        if self.spec.kind == "module":
            scores = self._module_scores(*batch.inputs.values())
        elif self.spec.kind == "encoder":
            scores = self._scores(**batch.inputs).logits
        else:
            scores = self._decoder_logits(batch)
        return scores.float()

    def _module_scores(self, *inputs: Tensor) -> Tensor:
        """What the user's module says; a batch norm takes its running statistics where a single row gives it none."""
        try:
            scores: Tensor = self._scores(*inputs)
        except ValueError:
            if len(inputs[0]) != 1 or not self.module.training:
                raise
            with _batch_norms_at_rest(self.module):
                scores = self._scores(*inputs)
        return scores

    def _decoder_logits(self, batch: LabelledBatch) -> Tensor:
        """From the last real token of each row, found by the mask: padding may be the end token, which rows contain."""
        import torch

        mask_BT = batch.inputs["attention_mask"]
        hidden_BTE = self._inner.base_model(**batch.inputs, use_cache=False).last_hidden_state
        last_B = mask_BT.sum(dim=1) - 1
        rows_B = torch.arange(mask_BT.shape[0], device=mask_BT.device)
        scores: Tensor = self._inner.score(hidden_BTE[rows_B, last_B])
        return scores


def classifier(spec: ModelSpec, settings: ModelSettings, note: Note) -> Classifier:
    """Load the model with a new head for the labels, and add its adapter.

    A user's module is built with `num_classes` and `input_shape` if its constructor asks for them.

    Raises:
        GalleyError: from loading and adapting; `model-invalid` when a user's module does not score the classes.
    """
    offered = {"num_classes": len(settings.labels), "input_shape": list(settings.input_shape)}
    if spec.source == "file":
        spec = replace(spec, config={**spec.config, "offered": offered})
    module, own = load(
        spec,
        precision=cast(LoadPrecision, settings.precision),
        device=settings.device,
        labels=settings.labels,
        offered=offered,
        quantise=adapters.registry.get(settings.tuning).quantises_base,
        seed=settings.seed,
        on_note=note,
    )
    module = adapters.apply(
        settings.tuning,
        module,
        rank=settings.rank,
        alpha=settings.alpha,
        dropout=settings.dropout,
        targets=settings.targets,
        seed=settings.seed,
        on_note=note,
    )
    if spec.kind == "module":
        check_class_scores(
            module,
            spec.reference,
            row_shape=settings.input_shape,
            num_classes=len(settings.labels),
            device=settings.device,
        )
    return Classifier(spec, module, settings.tokenizer if settings.tokenizer is not None else own, settings.labels)


@contextmanager
def _batch_norms_at_rest(module: nn.Module) -> Iterator[None]:
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.training]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def _is_peft(module: nn.Module) -> bool:
    import sys

    library = sys.modules.get("peft")
    return library is not None and isinstance(module, library.PeftModel)
