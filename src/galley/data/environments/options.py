"""What a recipe's `data:` says about an environment, checked and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from galley.base import GalleyError
from galley.data.environments.base import EnvironmentSettings, VectorKind
from galley.data.source import check_options, typed_option

OPTIONS = ("kwargs", "wrappers", "observe", "vector", "workers", "environment")


def environment_settings(reference: str, options: Mapping[str, Any], *, num_envs: int) -> EnvironmentSettings:
    """How the recipe's environments are made.

    Args:
        reference: `gym:ID`, `module:factory`, `file.py:factory` or `pettingzoo:NAME`.
        options: of `data.options`.
        num_envs: copies.

    Raises:
        GalleyError: `data-options`.
    """
    check_options(options, OPTIONS, "an environment")
    vector = typed_option(options, "vector", str, "auto")
    if vector not in get_args(VectorKind):
        allowed = ", ".join(get_args(VectorKind))
        raise GalleyError("data-options", f"data.options.vector: {vector!r} is not allowed", hint=f"one of {allowed}")
    workers = typed_option(options, "workers", int, 2)
    if not 1 <= workers <= 1024:
        raise GalleyError("data-options", f"data.options.workers: {workers} is not between 1 and 1024")
    observe = options.get("observe", [])
    if not isinstance(observe, list) or not all(isinstance(key, str) for key in observe):
        raise GalleyError("data-options", f"data.options.observe: {observe!r} is no list of keys", hint="[KEY, KEY]")
    return EnvironmentSettings(
        reference=reference,
        num_envs=num_envs,
        kwargs=typed_option(options, "kwargs", dict, {}),
        wrappers=_wrappers(options.get("wrappers", {})),
        observe=tuple(observe),
        vector=vector,
        workers=workers,
    )


def _wrappers(given: Any) -> dict[str, Mapping[str, Any]]:
    """Names to settings; a list of bare names is allowed, and a name without settings."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        given = {name: {} for name in given}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise GalleyError(
            "data-options",
            f"data.options.wrappers: {given!r} is no mapping of names to settings",
            hint="{time-limit: {steps: 200}}",
        )
    for name, settings in given.items():
        if settings is not None and not isinstance(settings, dict):
            raise GalleyError("data-options", f"data.options.wrappers.{name}: {settings!r} are no settings")
    asked = {name: settings or {} for name, settings in given.items()}
    if asked:
        from galley.data.environments.wrappers import chosen_wrappers

        chosen_wrappers(asked)
    return asked
