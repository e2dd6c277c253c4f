"""`convnet`: a small model that comes with Galley, treated like a user's own file."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from galley.models.references.file import FileReference
from galley.models.spec import ModelSpec

_BUILTIN = {"convnet": "ConvNet"}


class BuiltinReference:
    """A name of `galley.models.builtin`."""

    order = 5
    form = "convnet (a small image classifier)"

    def accepts(self, reference: str) -> bool:
        """One of the names."""
        return reference in _BUILTIN

    def resolve(self, reference: str) -> ModelSpec:
        """As for a user's file; the class is saved along with the result."""
        spec = find_spec("galley.models.builtin")
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / f"{reference}.py"
        return replace(FileReference().resolve(f"{path}:{_BUILTIN[reference]}"), reference=reference)


REFERENCE = BuiltinReference()
