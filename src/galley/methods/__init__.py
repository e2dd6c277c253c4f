"""Ways to learn, one file each. A new file with a `METHOD` is found by its name; nothing else needs an edit.

Those that learn from rows stand in this folder, those that act in `control/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from galley.base import GalleyError, Registry
from galley.methods import control
from galley.methods.base import Encoding, Loss, Method, MethodConfig

if TYPE_CHECKING:
    from pydantic import BaseModel

registry: Registry[type[Method]] = Registry("galley.methods", attribute="METHOD", kind="method")

CONTROL_DEFAULT = "ppo"
"""Learns in every action space; the planner may know a better one for the world at hand."""

__all__ = ["Encoding", "Loss", "Method", "MethodConfig", "config", "control", "default_for", "names", "registry"]


def names(task: str | None = None) -> tuple[str, ...]:
    """All methods, sorted; of a task, those that learn from rows or those that act."""
    if task is not None:
        return control.registry.names() if task == "control" else registry.names()
    return tuple(sorted({*registry.names(), *control.registry.names()}))


def default_for(task: str) -> str:
    """The method that a task is learned with when the recipe names none.

    Raises:
        GalleyError: `name-unknown` when no method declares the task.
    """
    if task == "control":
        return CONTROL_DEFAULT
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
    if name in control.registry.own_names():
        return control.registry.get(name).Config
    if name in registry.own_names() or name not in control.registry.names():
        return registry.get(name).Config
    return control.registry.get(name).Config
