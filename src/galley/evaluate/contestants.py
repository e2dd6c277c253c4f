"""The two models that are compared: what the run made, and what it started from."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from galley import models
from galley.models.fused import fuse

if TYPE_CHECKING:
    from torch import nn

    from galley.models.loading import Note
    from galley.plan.types import Plan
    from galley.runs import RunFolder


@dataclass(frozen=True)
class Contestant:
    """A model in memory.

    Args:
        module: in evaluation mode.
        tokenizer: None for models without text.
        spec: what it is.
        labels: names of the classes of a classifier.
    """

    module: nn.Module
    tokenizer: Any
    spec: models.ModelSpec
    labels: tuple[str, ...] = ()

    @property
    def context(self) -> int | None:
        """Tokens that the model reads at most; None where nothing bounds them."""
        from galley.generate.generator import context_length

        return context_length(self.module)


class Contestants:
    """Base and tuned model of a run. Where the run made an adapter, both share the weights in memory.

    Args:
        folder: of the run.
        plan: of the run.
        labels: names of the classes, for classifiers.
        note: told about unusual work.
    """

    def __init__(self, folder: RunFolder, plan: Plan, labels: tuple[str, ...], note: Note) -> None:
        self._plan, self._note = plan, note
        loaded = models.load_result(
            folder.result,
            precision=plan.precision,
            device=plan.device,
            offered={"num_classes": len(labels)} if labels else None,
            on_note=note,
        )
        tokenizer = loaded.tokenizer
        if tokenizer is None and (folder.result / "model" / "tokenizer_config.json").is_file():
            tokenizer = models.load_tokenizer(folder.result / "model")
        self.is_adapter = loaded.is_adapter
        # as in training, so that both are rounded alike
        fuse(loaded.module)
        self.tuned = Contestant(loaded.module, tokenizer, loaded.spec, loaded.labels or labels)

    @property
    def tokenizer(self) -> Any:
        """The run's tokenizer; None for models without text."""
        return self.tuned.tokenizer

    @contextmanager
    def base(self) -> Iterator[Contestant]:
        """What the training started from: without the adapter, or loaded for as long as it is needed."""
        if self.is_adapter:
            with self.tuned.module.disable_adapter():  # type: ignore[operator]  # a PeftModel
                yield self.tuned
            return
        base = self._load_base()
        yield base
        del base
        gc.collect()

    def _load_base(self) -> Contestant:
        spec, plan = models.resolve(self._plan.model), self._plan
        if spec.source == "random":
            size, tokenizer = len(self.tokenizer), self.tokenizer
            module = models.create(spec, vocab_size=size, tokenizer=tokenizer, seed=plan.seed, precision=plan.precision)
            return replace(self.tuned, module=module.to(plan.device), spec=spec)
        offered = None if self.tokenizer is None else {"vocab_size": len(self.tokenizer)}
        module, _ = models.load(
            spec, precision=plan.precision, device=plan.device, offered=offered, seed=plan.seed, on_note=self._note
        )
        return replace(self.tuned, module=module.eval(), spec=spec)
