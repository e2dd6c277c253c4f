"""A recipe back as YAML, and changes to a recipe that a run already has."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from galley.recipe.document import Document, from_mapping
from galley.recipe.load import BUDGETS, apply_override, check
from galley.recipe.problems import Problem
from galley.recipe.schema import SHORT_FORMS, Recipe
from galley.recipe.validate import MethodLookup


def dump(recipe: Recipe) -> str:
    """YAML that loads back equal; only what differs from the defaults."""
    from ruamel.yaml import YAML

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 100
    yaml.sort_base_mapping_type_on_output = False
    stream = io.StringIO()
    yaml.dump(as_mapping(recipe), stream)
    return stream.getvalue()


def as_mapping(recipe: Recipe) -> dict[str, Any]:
    """The recipe as a person would write it: a mapping without defaults, bare words where they suffice."""
    dumped: dict[str, Any] = recipe.model_dump(exclude_defaults=True)
    values = {key: value for key, value in dumped.items() if value != {}}
    method = values.pop("method", {})
    flat = {**{k: v for k, v in method.items() if k != "options"}, **method.get("options", {})}
    if flat:
        values["method"] = flat
    for section, key in SHORT_FORMS.items():
        if set(values.get(section, ())) == {key}:
            values[section] = values[section][key]
    ordered = {key: values[key] for key in Recipe.model_fields if key in values}
    return from_mapping(ordered).values


def extend(
    recipe: Recipe, overrides: Sequence[str], *, methods: MethodLookup, decided: Mapping[str, float] | None = None
) -> Recipe:
    """A run's recipe with a larger budget.

    Args:
        recipe: the recipe of the run.
        overrides: `budget.epochs=5`, or `budget.epochs=+1` to add to what it was.
        methods: as for `load`.
        decided: values that the plan chose where the recipe gave none, e.g. `{"budget.epochs": 3}`.

    Raises:
        GalleyError: `recipe-invalid`.
    """
    document = from_mapping(as_mapping(recipe))
    document.name = "the changes"
    for override in overrides:
        _extend_one(document, override, decided or {})
    budget = document.values.get("budget", {})
    for key in [key for key in BUDGETS if len(overrides) == 1 and key in budget]:
        if overrides[0].partition("=")[0].strip() in _EXCLUSIVE - {f"budget.{key}"}:
            del budget[key]
    return check(document, methods)


_EXCLUSIVE = frozenset(f"budget.{key}" for key in BUDGETS)
"""Extending by one of these replaces the others."""


def _extend_one(document: Document, override: str, decided: Mapping[str, float]) -> None:
    key, equals, text = (part.strip() for part in override.partition("="))
    path = tuple(key.split("."))
    if path[0] != "budget" or not equals:
        document.places[(key,)] = f"override {override}"
        what = "only the budget can be extended, e.g. budget.epochs=+1; train a new run for the rest"
        document.problems.append(Problem((key,), what))
        return
    if text.startswith("+"):
        before = document.values.get("budget", {}).get(path[-1], decided.get(key))
        amount = _number(text[1:])
        if amount is None or not isinstance(before, int | float):
            document.places[path] = f"override {override}"
            what = "expected a number after +" if amount is None else "there is no value to add to; write it without +"
            document.problems.append(Problem(path, what))
            return
        override = f"{key}={before + amount}"
    apply_override(document, override)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
