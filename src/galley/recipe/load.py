"""From a file, or a mapping, and overrides to a checked recipe; all mistakes in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from galley.base import GalleyError
from galley.recipe.checks import contradictions
from galley.recipe.document import Document, from_file, from_mapping, scalar_or_flow
from galley.recipe.expected import section_of
from galley.recipe.locate import absolute_references
from galley.recipe.problems import Path, Problem, raise_all, show
from galley.recipe.schema import SHORT_FORMS, Recipe
from galley.recipe.validate import MethodLookup, holds, method_problems, schema_problems

BUDGETS = ("epochs", "steps", "tokens")
"""Keys of the budget that exclude each other."""


def load(source: str | FilePath | Mapping[str, Any], overrides: Sequence[str] = (), *, methods: MethodLookup) -> Recipe:
    """Read, override, validate and locate a recipe.

    Args:
        source: a file, or the same mapping from Python. Files that it names are looked for beside it, then in the
            working directory.
        overrides: `budget.epochs=1` and the like; values are YAML.
        methods: the methods, for their names and settings; `galley.methods` is one.

    Raises:
        GalleyError: `recipe-invalid` with every mistake, `recipe-not-found`, `recipe-syntax`.

    Example:
        >>> from galley import methods
        >>> load({"task": "chat", "model": "org/name", "data": "faq.csv"}, methods=methods).task
        'chat'
    """
    document = from_mapping(source) if isinstance(source, Mapping) else from_file(FilePath(source))
    _make_way(document, overrides)
    for override in overrides:
        apply_override(document, override)
    recipe = check(document, methods)
    folder = FilePath.cwd() if isinstance(source, Mapping) else FilePath(source).absolute().parent
    return absolute_references(recipe, folder)


def _make_way(document: Document, overrides: Sequence[str]) -> None:
    """`budget.steps=20` replaces the epochs of the file; two overrides that exclude each other stay a mistake."""
    budget = document.values.get("budget")
    given = {override.partition("=")[0].strip() for override in overrides}
    if isinstance(budget, dict) and given & {f"budget.{key}" for key in BUDGETS}:
        document.values["budget"] = {key: value for key, value in budget.items() if key not in BUDGETS}


def check(document: Document, methods: MethodLookup) -> Recipe:
    """A document's recipe.

    Raises:
        GalleyError: `recipe-invalid` with every mistake.
    """
    values = _canonical(document.values)
    found = [*schema_problems(values), *method_problems(values, methods)]
    already = {problem.path for problem in document.problems}
    document.problems.extend(problem for problem in found if problem.path not in already)
    sound = _without(values, [problem.path for problem in found if holds(values, _inside(problem.path))])
    if not schema_problems(sound):
        document.problems.extend(contradictions(Recipe.model_validate(sound)))
    raise_all(document.lines(), document.name)
    return Recipe.model_validate(values)


def apply_override(document: Document, override: str) -> None:
    """Put `budget.epochs=1` into the document; mistakes are noted in it."""
    key, equals, text = override.partition("=")
    place = f"override {override if len(override) <= 100 else override[:96] + ' ...'}"
    path: Path = tuple(key.strip().split("."))
    if not equals or "" in path:
        document.places[("", override)] = place
        document.problems.append(Problem(("", override), "expected KEY=VALUE, e.g. budget.epochs=1"))
        return
    try:
        value = scalar_or_flow(text)
    except GalleyError as error:
        document.places[path] = place
        document.problems.append(Problem(path, f"{show(text)} is not valid YAML: {error.message}"))
        return
    section = document.values
    for number, part in enumerate(path[:-1]):
        inner = section.get(str(part))
        if isinstance(inner, str) and number == 0 and part in SHORT_FORMS:
            inner = {SHORT_FORMS[str(part)]: inner}
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            document.places[path] = place
            document.problems.append(Problem(path, f"{'.'.join(map(str, path[: number + 1]))} has no keys"))
            return
        section[str(part)] = inner = dict(inner)
        section = inner
    section[str(path[-1])] = value
    for known in [known for known in document.places if known[: len(path)] == path]:
        del document.places[known]
    document.places[path] = place


def _canonical(values: dict[str, Any]) -> dict[str, Any]:
    """Bare words become sections, empty sections default, and the method's settings stand under `options`."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        field = Recipe.model_fields.get(key)
        is_section = field is not None and section_of(field.annotation) is not None
        if is_section and value is None and key != "data":
            continue
        result[key] = {SHORT_FORMS[key]: value} if key in SHORT_FORMS and isinstance(value, str) else value
    method = result.get("method")
    if isinstance(method, dict):
        options = {key: value for key, value in method.items() if key != "name"}
        result["method"] = {"name": method.get("name"), "options": options}
    return result


def _inside(path: Path) -> Path:
    """Method settings stand one level deeper in the canonical form."""
    return ("method", "options", *path[1:]) if path[0] == "method" and len(path) > 1 else path


def _without(values: dict[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """The values without what is wrong, with stand-ins for what must be there, so that the rest can be checked."""
    stand_ins = {"task": "chat", "model": "-", "data": {"path": "-"}}  # a control recipe needs no model
    bad = {_inside(path)[:2] if _inside(path)[0] != "method" else ("method",) for path in paths}
    sound: dict[str, Any] = {}
    for key, value in values.items():
        if (key,) in bad:
            continue
        inner = {k: v for k, v in value.items() if (key, k) not in bad} if isinstance(value, dict) else value
        sound[key] = inner
    if isinstance(sound.get("data"), dict):
        sound["data"] = {**stand_ins["data"], **sound["data"]}  # type: ignore[dict-item]
    return {**stand_ins, **sound}
