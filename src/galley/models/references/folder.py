"""A folder in hub layout: config.json, safetensors and a tokenizer."""

from __future__ import annotations

from pathlib import Path

from galley.base import GalleyError
from galley.models.shape import read_folder
from galley.models.spec import ModelSpec


class FolderReference:
    """`./my-model` or any existing folder."""

    order = 30
    form = "a folder in hub layout"

    def accepts(self, reference: str) -> bool:
        """An existing folder, or words that can only be a path."""
        return Path(reference).expanduser().is_dir() or reference.startswith(("/", "./", "../", "~"))

    def resolve(self, reference: str) -> ModelSpec:
        """The shape from config.json and the safetensors headers."""
        folder = Path(reference).expanduser()
        if not folder.exists():
            raise GalleyError("model-not-found", f"there is no folder or file {reference}", hint=_near(folder))
        if not folder.is_dir():
            message = f"{reference} is not a model: a file must be .gguf, or file.py:Class"
            raise GalleyError("model-not-found", message, hint="name the folder that holds config.json")
        return read_folder(folder.resolve(), reference=reference, source="folder")


def _near(path: Path) -> str:
    import difflib

    parent = path.parent
    if not parent.is_dir():
        return f"{parent} does not exist either"
    near = difflib.get_close_matches(path.name, [item.name for item in parent.iterdir()], n=1)
    return (
        f"did you mean {parent / near[0]}?" if near else "a hub id is written org/name, without a leading dot or slash"
    )


REFERENCE = FolderReference()
