"""From the words of a recipe to a model's shape: hub ids, folders, GGUF files, packages, Python files, random."""

from __future__ import annotations

from pathlib import Path

from galley.base import GalleyError, Registry
from galley.models.references.base import Reference
from galley.models.spec import ModelSpec

registry: Registry[Reference] = Registry("galley.models.references", attribute="REFERENCE", kind="model reference")

__all__ = ["Reference", "registry", "resolve"]


def resolve(reference: str) -> ModelSpec:
    """Read the shape of a model from its config or weight-file header.

    Args:
        reference: a hub id `org/name`, a folder, a `.gguf` file, a name in an installed package, `file.py:Class`
            or `random:15M`.

    Raises:
        GalleyError: `model-not-found`, `model-offline`, `model-invalid` or `model-unsupported`.

    Example:
        >>> resolve("random:15M").family
        'llama'
    """
    reference = reference.strip()
    # Installed packages are asked last: finding them takes longer than resolving a reference of our own.
    for names in (registry.own_names, registry.names):
        kinds = sorted(map(registry.get, names()), key=lambda kind: kind.order)
        for kind in kinds:
            if kind.accepts(reference):
                return kind.resolve(reference)
    raise GalleyError("model-not-found", f"there is no model {reference!r}", hint=_hint(reference, kinds))


def _hint(reference: str, kinds: list[Reference]) -> str:
    import difflib

    from galley.models.references.package import package_models

    near = difflib.get_close_matches(reference.lower(), [*package_models(), *_files()], n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}a model is {', '.join(kind.form for kind in kinds[:-1])} or {kinds[-1].form}"


def _files() -> list[str]:
    """Names beside the user that could be meant: folders and weight files of the working directory."""
    return [path.name for path in Path().iterdir() if path.is_dir() or path.suffix in {".gguf", ".py"}]
