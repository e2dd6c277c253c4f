"""The seam of model references: one file per kind of words that a recipe may name a model with."""

from __future__ import annotations

from typing import Protocol

from galley.models.spec import ModelSpec


class Reference(Protocol):
    """One kind of model reference. A file of this folder defines `REFERENCE = TheClass()`."""

    order: int
    """References are asked from the lowest order to the highest; the first that accepts resolves."""
    form: str
    """How such a reference is written, for messages."""

    def accepts(self, reference: str) -> bool:
        """Whether the words are of this kind. Looks at names and files only."""

    def resolve(self, reference: str) -> ModelSpec:
        """The model's shape, without loading weights or importing anything heavy."""
