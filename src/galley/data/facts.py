"""Statistics of a dataset without reading it again, while what it is read from stays the same."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from galley.base.remembered import remembered
from galley.data.dataset import DataStatistics
from galley.data.reading import read
from galley.recipe.schema import DataSection, EvaluateSection

VERSION = 1
"""Counts up when the same data would be read differently, so that older facts are not used."""


def statistics(section: DataSection, *, task: str, evaluate: EvaluateSection, seed: int = 0) -> DataStatistics:
    """`read(...).statistics`, from the cache where the data is one file or comes with a package.

    Args:
        section: what to read.
        task: `chat`, `complete` or `classify`.
        evaluate: what is held out.
        seed: of generated data.

    Raises:
        GalleyError: one of the `data-` codes.
    """

    def look(_: Path) -> dict[str, Any]:
        return asdict(read(section, task=task, evaluate=evaluate, seed=seed).statistics)

    place = _changes_with(section.path)
    if place is None or isinstance(evaluate.held_out, str):
        return DataStatistics(**look(Path()))
    asked = [VERSION, section.model_dump(mode="json"), task, evaluate.held_out, evaluate.rows, seed]
    digest = blake2b(json.dumps(asked).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    facts = remembered(place, f"statistics-{digest}", look)
    return DataStatistics(**{**facts, "labels": tuple(facts["labels"])})


def _changes_with(reference: str) -> Path | None:
    """The file whose change means other data: itself, or the first file of an installed package; None if neither."""
    scheme, colon, name = reference.partition(":")
    if colon and scheme in ("package", "reasoning-gym"):
        package = name.partition("/")[0] if scheme == "package" else "reasoning_gym"
        found = importlib.util.find_spec(_MODULES.get(package, package.replace("-", "_")))
        return Path(found.origin) if found is not None and found.origin else None
    path = Path(reference)
    try:
        return path if path.is_file() else None
    except OSError:
        return None


_MODULES = {"digits": "sklearn"}
"""Modules of data that is named shorter."""
