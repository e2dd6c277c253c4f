"""With what a run was made: versions, machine, and hashes of data, tokenizer and weights."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import data, models
from galley.base import GalleyError

if TYPE_CHECKING:
    from galley.runs import RunFolder

_PACKAGES = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy", "bitsandbytes")
_WORLDS = ("gymnasium", "box2d", "mujoco", "ale-py", "minigrid", "pettingzoo")


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


def control_manifest(reference: str, options: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """The content of manifest.json for a new run of an agent."""
    return {
        "galley": metadata.version("galley-train"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions((*_PACKAGES, *_WORLDS)),
        "seed": seed,
        "data": {"sources": [reference], "fingerprint": world_fingerprint(reference, options)},
        "tokenizer": "",
        "model": {"reference": "", "family": "", "weights": ""},
    }


def world_fingerprint(reference: str, options: Mapping[str, Any]) -> str:
    """Hash of what an agent acts in or learns from: the words, and the content of the files that they name."""
    digest = hashlib.blake2b(json.dumps([reference, options], sort_keys=True, default=str).encode(), digest_size=16)
    for words in (reference, str(options.get("environment", ""))):
        path = Path(words.partition(".py:")[0] + ".py" if ".py:" in words else words)
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check_world(folder: RunFolder, reference: str, options: Mapping[str, Any]) -> None:
    """Refuse to continue a run in another world than it was started in.

    Raises:
        GalleyError: `checkpoint-mismatch`.
    """
    if folder.manifest()["data"]["fingerprint"] != world_fingerprint(reference, options):
        raise GalleyError(
            "checkpoint-mismatch",
            f"{reference} changed since the run {folder.name} began: continuing would not be the same training",
            hint="bring back the file of then, or start a new run under another name",
        )


def weights_of(spec: models.ModelSpec) -> str:
    """Hash of the weights that training starts from; of the source for a user's own module; empty for random ones."""
    if spec.source == "random":
        return ""
    if spec.source == "file":
        return models.source_hash(Path(spec.config["file"]))
    return models.weights_fingerprint(models.materialise(spec))


def versions(names: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Versions of the packages that a result depends on, as installed."""
    found = {}
    for name in names:
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
