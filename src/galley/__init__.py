"""Galley trains models: one recipe in, a trained and proven model out."""

from __future__ import annotations

import sys
from types import ModuleType
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


class _Package(ModuleType):
    """`galley.plan` is the function, also after the package of that name was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "plan" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
