"""Where converted models are kept, under a name made of the content of the file that they come from."""

from __future__ import annotations

from pathlib import Path

from galley.base.cache import cache_folder
from galley.base.remembered import remembered
from galley.models.fingerprint import file_fingerprint

CONVERSION = 1
"""Counts up when the conversion changes, so that older results are not used."""


def converted_folder(path: Path) -> Path:
    """Hub-layout folder of a weight file that is converted once (existing or not)."""
    key = remembered(path, "fingerprint", file_fingerprint).rpartition(":")[2][:16]
    return cache_folder() / "models" / f"{path.stem}-{key}-{CONVERSION}"
