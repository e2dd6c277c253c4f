"""A finished run, read back from its folder: what was asked, decided, held out and made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from galley import data, methods, recipe
from galley.evaluate.contestants import Contestants
from galley.evaluate.questions import Question, questions
from galley.plan.types import Plan

if TYPE_CHECKING:
    from galley.base import Observer
    from galley.data import Dataset
    from galley.recipe.schema import Recipe
    from galley.runs import RunFolder


@dataclass(frozen=True)
class FinishedRun:
    """Everything that judging reads.

    Args:
        folder: of the run.
        asked: its recipe.
        plan: its plan.
        dataset: its data, read again.
        observer: told what is noteworthy.
    """

    folder: RunFolder
    asked: Recipe
    plan: Plan
    dataset: Dataset
    observer: Observer

    @classmethod
    def open(cls, folder: RunFolder, observer: Observer) -> FinishedRun:
        """Read the run.

        Raises:
            GalleyError: when the data of the run cannot be read any more.
        """
        asked = recipe.load(folder.path / "recipe.yaml", methods=methods)
        dataset = data.read(asked.data, task=asked.task, evaluate=asked.evaluate, seed=asked.seed)
        if dataset.fingerprint != folder.manifest()["data"]["fingerprint"]:
            observer.note(
                "data-changed", "the data is not what it was in training: held-out rows may have been learned"
            )
        return cls(folder, asked, Plan.model_validate(folder.plan()), dataset, observer)

    @cached_property
    def contestants(self) -> Contestants:
        """Base and tuned model; loaded when first asked for."""
        self.observer.phase("load result")
        return Contestants(self.folder, self.plan, self.dataset.statistics.labels, self.observer.note)

    def held_out(self, count: int) -> list[Question]:
        """The first held-out rows."""
        return questions(self.dataset.held_out[:count], self.contestants.tokenizer)

    def encode(self, rows: list[Question]) -> Any:
        """The rows as the method trains on them."""
        kind = methods.registry.get(self.plan.method)
        method = kind(kind.Config.model_validate(self.plan.method_options))
        labels = self.contestants.tuned.labels
        encoding = methods.Encoding(
            self.contestants.tokenizer, self.plan.batch.max_length_tokens, labels, self.observer.note
        )
        return method.encode([row.example for row in rows], encoding)
