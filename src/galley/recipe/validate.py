"""Check a recipe against the schema, in words: every mistake with its place, what is allowed and the nearest word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from galley.recipe import foreign
from galley.recipe.expected import choices, expected, field_of, item_of, section_of
from galley.recipe.problems import Path, Problem, did_you_mean, dotted, nearest, show
from galley.recipe.schema import SHORT_FORMS, Recipe


class MethodLookup(Protocol):
    """What reading a recipe needs to know of the methods; `galley.methods` is one."""

    def names(self, task: str | None = None) -> Sequence[str]:
        """All methods, or those that can learn a task at all."""

    def config(self, name: str) -> type[BaseModel]:
        """The settings of a method."""

    def default_for(self, task: str) -> str:
        """The method that a task uses when the recipe names none."""


def schema_problems(values: dict[str, Any]) -> list[Problem]:
    """What is wrong with a recipe's values, method options apart.

    A key is not called missing beside another framework's word for it, which is pointed at anyway.
    """
    meant = {(foreign.KEYS.get(foreign.word(key)) or "").partition(".")[0] for key in values}
    found = problems_of(Recipe, values, ())
    if values.get("task") != "control" and "model" not in values:
        found.append(Problem(("model",), f"is missing; expected {expected(str)}"))
    return [problem for problem in found if holds(values, problem.path) or problem.path[0] not in meant]


def method_problems(values: dict[str, Any], methods: MethodLookup) -> list[Problem]:
    """What is wrong with the method's name and options."""
    section = values.get("method", {})
    if not isinstance(section, dict):
        return []
    name = section.get("name")
    if name is None:
        task = values.get("task")
        known = isinstance(task, str) and task in choices(Recipe.model_fields["task"].annotation)
        if not known or not section.get("options"):
            return []
        name = methods.default_for(str(task))
    if not isinstance(name, str):
        return []
    names = methods.names()
    task = values.get("task")
    if name in names and task in choices(Recipe.model_fields["task"].annotation):
        suitable = methods.names(task)
        if name not in suitable:
            what = f"method {name} does not learn the task {task}; expected one of {', '.join(suitable)}"
            return [Problem(("method",), what)]
    if name not in names:
        what = f"there is no method {show(name)}; expected one of {', '.join(names)}{did_you_mean(name, names)}"
        return [Problem(("method",), what)]
    return problems_of(methods.config(name), section.get("options", {}), ("method",))


def problems_of(model: type[BaseModel], values: Any, prefix: Path) -> list[Problem]:
    """Pydantic's errors in our words, one for each value.

    Args:
        model: what the values should be.
        values: plain values.
        prefix: where they stand in the recipe.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        found: dict[Path, Problem] = {}
        for item in error.errors(include_url=False, include_input=False):
            path = _real_path(model, values, item["loc"])
            found.setdefault(path, Problem((*prefix, *path), _describe(model, values, path, item, prefix)))
        return list(found.values())
    return []


def _real_path(model: type[BaseModel], values: Any, loc: tuple[str | int, ...]) -> Path:
    """The part of pydantic's location that names keys; members of unions are left off."""
    path: Path = ()
    annotation: Any = model
    for part in loc:
        section = section_of(annotation)
        if section is not None and isinstance(part, str):
            field = field_of(section, part)
            if field is None:
                return (*path, part)
            annotation = field.annotation
        else:
            item = item_of(annotation, part)
            if item is None or not holds(values, (*path, part)):
                return path
            annotation = item
        path = (*path, part)
    return path


def holds(values: Any, path: Path) -> bool:
    """Whether there is a value at the path."""
    try:
        value_at(values, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def value_at(values: Any, path: Path) -> Any:
    """What stands at the path of nested mappings and lists."""
    for part in path:
        values = values[part]
    return values


def _describe(model: type[BaseModel], values: Any, path: Path, item: Any, prefix: Path) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return _unknown_key(model, values, path, prefix)
    annotation, metadata = _field_at(model, path)
    wanted = expected(annotation, metadata, all_bounds=kind == "less_than_equal")
    if not prefix and len(path) == 1 and path[0] in SHORT_FORMS:
        wanted = f"text or {wanted}"
    if kind == "missing" and not holds(values, path):
        return f"is missing; expected {wanted}"
    value = value_at(values, path)
    if kind == "finite_number":
        return f"{show(value)} is not allowed; expected {wanted.replace('a number', 'a finite number')}"
    if kind in ("value_error", "assertion_error"):
        return f"{show(value)} is not allowed: {item['ctx']['error']}"
    return f"{show(value)} is not allowed; expected {wanted}{_value_hint(value, annotation)}"


def _value_hint(value: Any, annotation: Any) -> str:
    allowed = choices(annotation)
    if isinstance(value, str) and allowed:
        ours = foreign.VALUES.get(value.lower())
        return f"; here it is called {ours}" if ours in allowed else did_you_mean(value, allowed)
    if isinstance(value, str) and ("number" in expected(annotation)):
        return "; write it without quotes" if _is_number(value) else ""
    if (
        isinstance(value, str)
        and value.lower() in ("yes", "no", "on", "off")
        and "true or false" in expected(annotation)
    ):
        return f"; write {'true' if value.lower() in ('yes', 'on') else 'false'}"
    if isinstance(value, int | float) and not isinstance(value, bool) and "text" in expected(annotation):
        return "; put it in quotes"
    return ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _field_at(model: type[BaseModel], path: Path) -> tuple[Any, Sequence[Any]]:
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for part in path:
        section = section_of(annotation)
        field = field_of(section, part) if section is not None and isinstance(part, str) else None
        if field is not None:
            annotation, metadata = field.annotation, field.metadata
        else:
            annotation, metadata = item_of(annotation, part), ()
    return annotation, metadata


def _unknown_key(model: type[BaseModel], values: Any, path: Path, prefix: Path) -> str:
    key = str(path[-1])
    section = section_of(_field_at(model, path[:-1])[0])
    assert section is not None
    siblings = tuple(section.model_fields)
    here = (*prefix, *path)[:-1]
    place = f"in {dotted(here)}" if here else "in a recipe"
    if nearest(key, siblings) is None or foreign.word(key) in foreign.KEYS | foreign.NOTES:
        elsewhere = pointer(key, value_at(values, path), here)
        if elsewhere is not None:
            return elsewhere
    allowed = f"; allowed {place}: {', '.join(siblings)}" if siblings else f"; nothing is allowed {place}"
    return f"unknown key{did_you_mean(key, siblings) or allowed}"


def pointer(key: str, value: Any, here: Path = ()) -> str | None:
    """Where a key of another framework, or of another section, belongs; None for words that nobody uses.

    Args:
        key: the key as written.
        value: its value, shown in the advice when it is short.
        here: the section that it was written in.
    """
    form = foreign.word(key)
    if form in foreign.NOTES:
        note = foreign.NOTES[form]
        return f"not a key here; {note if note.startswith(('write', 'set')) else f'it {note}'}"
    ours = foreign.KEYS.get(form)
    if ours is None:
        places = [dotted(path) for path in _all_keys() if path[-1] == form and path[:-1] != here]
        if not places:
            near = nearest(key, [dotted(path) for path in _all_keys()]) or nearest(
                key, [str(path[-1]) for path in _all_keys()]
            )
            if near is None:
                return None
            places = [dotted(path) for path in _all_keys() if near in (dotted(path), path[-1])][:1]
            return f"unknown key; did you mean {places[0]}?"
        ours = places[0]
        return f"belongs elsewhere: write {_advice(ours, value)}"
    return f"is called {ours} here: write {_advice(ours, value)}"


def _advice(ours: str, value: Any) -> str:
    section, _, key = ours.rpartition(".")
    if isinstance(value, dict | list) or value is None or len(show(value)) > 30:
        return ours
    text = value if isinstance(value, str) else show(value)
    return f"{section}: {{{key}: {text}}}" if section else f"{key}: {text}"


def _all_keys() -> Iterator[Path]:
    for name, field in Recipe.model_fields.items():
        yield (name,)
        section = section_of(field.annotation)
        for key in section.model_fields if section is not None else ():
            if key not in ("options",):
                yield (name, key)
