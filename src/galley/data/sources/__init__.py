"""From the words in a recipe to sources of rows: files, installed packages, hub datasets, generated tasks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from galley.data.source import Source

__all__ = ["SCHEMES", "open_sources"]

SCHEMES = {"hub": "hub", "reasoning-gym": "reasoning_gym", "package": "packages"}
"""Word before the colon to the module that opens such sources; without one, a path is meant."""


def open_sources(
    reference: str, *, options: dict[str, Any], split: str | None = None, rows: int | None = None, seed: int = 0
) -> list[Source]:
    """The sources that a reference names, each with its first records as a sample.

    Args:
        reference: file, folder, glob, `hub:NAME`, `reasoning-gym:TASK` or `package:NAME`.
        options: settings of the source, the file kind and the format.
        split: split of a hub dataset.
        rows: rows wanted, for sources that make them.
        seed: seed of sources that make their rows, unless the options name one.

    Raises:
        GalleyError: `data-not-found`, `data-format` and those of the file kinds.
    """
    scheme, separator, rest = reference.partition(":")
    module = SCHEMES.get(scheme) if separator else None
    opener = importlib.import_module(f"{__name__}.{module or 'files'}")
    name = rest if module else reference
    found = opener.open_sources(name, options=options, split=split, rows=rows, seed=seed)
    return cast("list[Source]", found)
