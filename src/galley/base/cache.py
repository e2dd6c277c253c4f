"""The folder for what can be made again: tokens, converted models, generated tasks."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cache_folder() -> Path:
    """`$GALLEY_CACHE`, or the user's cache folder of this system. It may not exist yet."""
    chosen = os.environ.get("GALLEY_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if platform.system() == "Linux":  # as platformdirs has it, which takes longer to import than a plan to make
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (base if base.is_absolute() else Path.home() / ".cache") / "galley"
    from platformdirs import user_cache_path

    return user_cache_path("galley", appauthor=False)
