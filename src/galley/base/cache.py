"""The folder for what can be made again: tokens, converted models, generated tasks."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$GALLEY_CACHE`, or the user's cache folder of this system. It may not exist yet."""
    chosen = os.environ.get("GALLEY_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("galley", appauthor=False)
