"""With what a run was made: versions, machine, and hashes of data, tokenizer and weights."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import data, models
from galley.base import GalleyError

if TYPE_CHECKING:
    from galley.runs import RunFolder

_PACKAGES = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy", "bitsandbytes")


def manifest(spec: models.ModelSpec, dataset: data.Dataset, tokenizer: Any, *, seed: int) -> dict[str, Any]:
    """The content of manifest.json for a new run."""
    return {
        "galley": metadata.version("galley-train"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions(),
        "seed": seed,
        "data": {
            "sources": list(dataset.sources),
            "format": dataset.format,
            "columns": dataset.columns,
            "rows": len(dataset.train),
            "held_out_rows": len(dataset.held_out),
            "fingerprint": dataset.fingerprint,
        },
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "model": {"reference": spec.reference, "family": spec.family, "weights": weights_of(spec)},
    }


def weights_of(spec: models.ModelSpec) -> str:
    """Hash of the weights that training starts from; of the source for a user's own module; empty for random ones."""
    if spec.source == "random":
        return ""
    if spec.source == "file":
        return models.source_hash(Path(spec.config["file"]))
    return models.weights_fingerprint(models.materialise(spec))


def versions() -> dict[str, str]:
    """Versions of the packages that a result depends on, as installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Hash of vocabulary, special tokens and template; empty for models without text."""
    from galley.data.encoder import TextEncoder

    return TextEncoder(tokenizer).fingerprint if tokenizer is not None else ""


def check_manifest(folder: RunFolder, dataset: data.Dataset, tokenizer: Any) -> None:
    """Refuse to continue a run on other data or with another tokenizer than it was started with.

    Raises:
        GalleyError: `checkpoint-mismatch`.
    """
    stored = folder.manifest()
    now = {"data": dataset.fingerprint, "tokenizer": tokenizer_fingerprint(tokenizer)}
    before = {"data": stored["data"]["fingerprint"], "tokenizer": stored["tokenizer"]}
    for what, fingerprint in now.items():
        if fingerprint != before[what]:
            raise GalleyError(
                "checkpoint-mismatch",
                f"the {what} changed since the run {folder.name} began: continuing would not be the same training",
                hint=f"bring back the {what} of then, or start a new run under another name",
            )
