"""Words of a recipe that name a file of another package: an engine, a scorer, a sink. Only file names are listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from galley.base import Registry
from galley.recipe.problems import Path, Problem, did_you_mean, show
from galley.recipe.schema import Recipe

NAMED: dict[Path, Registry[Any]] = {
    ("override", "engine"): Registry("galley.engines", attribute="ENGINE", kind="engine"),
    ("evaluate", "scorer"): Registry("galley.evaluate.scorers", attribute="SCORER", kind="scorer"),
    ("checkpoint", "sinks"): Registry("galley.runs.sinks", attribute="SINK", kind="sink"),
}
"""Field to the registry of what it names. Registries find files by name: nothing of these packages is needed here."""


def unknown_names(recipe: Recipe) -> Iterator[Problem]:
    """Names that no file and no installed package has."""
    for path, registry in NAMED.items():
        section, key = path
        given = getattr(getattr(recipe, str(section)), str(key))
        if isinstance(given, str):
            yield from _unknown(path, given, registry)
        for number, name in enumerate(given if isinstance(given, list) else ()):
            yield from _unknown((*path, number), name, registry)


def _unknown(path: Path, name: str, registry: Registry[Any]) -> Iterator[Problem]:
    # Installed packages are asked last: finding what they add takes longer than anything else here.
    if name in registry.own_names() or name in registry.names():
        return
    names = registry.names()
    near = did_you_mean(name, names)
    yield Problem(path, f"there is no {registry.kind} {show(name)}; expected one of {', '.join(names)}{near}")
