"""Galley trains models: one recipe in, a trained and proven model out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

__version__ = "0.1.0"

if TYPE_CHECKING:
    from galley.api import Run as Run
    from galley.api import plan as plan
    from galley.api import train as train
    from galley.base import GalleyError as GalleyError
    from galley.recipe import Recipe as Recipe

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"api": ["Run", "plan", "train"], "base": ["GalleyError"], "recipe": ["Recipe"]},
)
