"""The tokenizer that a model comes with, or one made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from galley.models.loading import Note, load_tokenizer, materialise
from galley.models.spec import ModelSpec
from galley.models.tokenizer_training import train_tokenizer


def tokenizer_for(
    spec: ModelSpec, texts: Callable[[], Iterable[str]], *, on_note: Note = lambda kind, message: None
) -> Any:
    """The model's own tokenizer; a new one for a model with random weights; None for a user's own module.

    Args:
        spec: from `resolve`.
        texts: gives the training text, read only when a tokenizer is trained on it.
        on_note: told about slow or unusual work.

    Raises:
        GalleyError: `model-offline`, `model-invalid`.
    """
    if spec.source == "file":
        return None
    if spec.source == "random":
        tokenizer = train_tokenizer(texts(), spec.vocab_size)
        on_note("tokenizer", f"a byte-level BPE of {len(tokenizer):,} entries was made from the training text")
        return tokenizer
    return load_tokenizer(materialise(spec, on_note=on_note))
