"""Ways to learn, one file each. A new file with a `METHOD` is found by its name; nothing else needs an edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from galley.base import GalleyError, Registry
from galley.methods.base import Encoding, Loss, Method, MethodConfig

if TYPE_CHECKING:
    from pydantic import BaseModel

registry: Registry[type[Method]] = Registry("galley.methods", attribute="METHOD", kind="method")

__all__ = ["Encoding", "Loss", "Method", "MethodConfig", "config", "default_for", "names", "registry"]


def names() -> tuple[str, ...]:
    """All methods, sorted."""
    return registry.names()


def default_for(task: str) -> str:
    """The method that a task is learned with when the recipe names none.

    Raises:
        GalleyError: `name-unknown` when no method declares the task.
    """
    # Methods of installed packages are asked last: finding them takes longer than anything else here.
    for found in (registry.own_names, registry.names):
        for name in found():
            if task in registry.get(name).tasks:
                return name
    raise GalleyError("name-unknown", f"no method is the default for task {task!r}", hint="name one under `method:`")


def config(name: str) -> type[BaseModel]:
    """The settings of a method, for checking a recipe.

    Raises:
        GalleyError: `name-unknown`, with the nearest name.
    """
    return registry.get(name).Config
