"""Worlds to act in: environments by name, several copies stepped together, over flat arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.environments.base import Environments, EnvironmentSettings, Episode, Step

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

__all__ = ["EnvironmentSettings", "Environments", "Episode", "Step", "open_environments"]


def open_environments(settings: EnvironmentSettings) -> Environments:
    """The copies that a recipe asks for, not yet reset.

    A native vector environment is taken where the environment has one, nothing is wrapped around it and its state can
    be stored; not for one copy alone, which takes a fifth of the time without it.

    Raises:
        GalleyError: `data-not-found`, `package-missing`, `environment-failed`, `environment-unsupported`,
            `data-options`.
    """
    if settings.reference.startswith("pettingzoo:"):
        from galley.data.environments.pettingzoo import Agents

        return Agents(settings)
    if settings.vector == "processes":
        from galley.data.environments.processes import Processes

        return Processes(settings)
    from galley.data.environments.serial import Serial
    from galley.data.environments.single import make_single

    native = settings.vector == "native" or (settings.vector == "auto" and settings.num_envs > 1)
    if native and (made := _native(settings)) is not None:
        from galley.data.environments.native import Native

        return Native(made, observe=settings.observe)
    if settings.vector == "native":
        raise GalleyError(
            "data-options",
            f"data.options.vector: {settings.reference} has no native vector environment that can be resumed",
            hint="leave it out",
        )
    return Serial(partial(make_single, settings), settings.num_envs, observe=settings.observe)


def _native(settings: EnvironmentSettings) -> VectorEnv[Any, Any, Any] | None:
    scheme, _, name = settings.reference.partition(":")
    if scheme != "gym" or settings.wrappers:
        return None
    from galley.data.environments.registered import import_gymnasium, register_packages

    gymnasium = import_gymnasium()
    register_packages(name)
    known = gymnasium.registry.get(name)
    if known is None or known.vector_entry_point is None or not str(known.vector_entry_point).startswith("gymnasium."):
        return None  # others keep their state where it cannot be read
    try:
        made: VectorEnv[Any, Any, Any] = gymnasium.make_vec(
            name,
            num_envs=settings.num_envs,
            vectorization_mode="vector_entry_point",
            **(settings.kwargs or {}),
        )
    except TypeError:
        return None  # it does not take these arguments; the single one may
    return made
