"""Where converted models are kept, under a name made of the content of the file that they come from."""

from __future__ import annotations

import os
from pathlib import Path

from galley.models.fingerprint import file_fingerprint

CONVERSION = 1
"""Counts up when the conversion changes, so that older results are not used."""


def cache_root() -> Path:
    """Galley's cache: `GALLEY_CACHE`, or the place where the system keeps caches."""
    if configured := os.environ.get("GALLEY_CACHE"):
        return Path(configured).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("galley")


def converted_folder(path: Path) -> Path:
    """Hub-layout folder of a weight file that is converted once (existing or not)."""
    key = file_fingerprint(path).rpartition(":")[2][:16]
    return cache_root() / "models" / f"{path.stem}-{key}-{CONVERSION}"
