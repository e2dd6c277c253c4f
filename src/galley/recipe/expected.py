"""What a field takes, in words, read from its type."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_SIMPLE = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Any: "any value"}
_FAR = 1_000
"""Upper bounds from here on only keep sums from overflowing, and are named to those who reach them."""
_PLURAL = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", Any: "values"}


def expected(annotation: Any, metadata: Sequence[Any] = (), *, all_bounds: bool = False) -> str:
    """`a whole number of at least 1` and the like.

    Args:
        annotation: the type of the field or of a part of it.
        metadata: constraints, as pydantic keeps them in `FieldInfo.metadata`.
        all_bounds: name upper bounds that no honest value reaches, too.
    """
    members = [kind for kind in members_of(annotation) if kind is not type(None)]
    return " or ".join(dict.fromkeys(_one(kind, metadata, all_bounds) for kind in members))


def choices(annotation: Any) -> tuple[str, ...]:
    """The words that the type allows, when it allows only some."""
    kinds = (kind for kind in members_of(annotation) if get_origin(kind) is Literal)
    return tuple(str(value) for kind in kinds for value in get_args(kind))


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone; annotations are taken off."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(kind for member in get_args(annotation) for kind in members_of(member))
    return (annotation,)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model among the members, when there is one."""
    for kind in members_of(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def item_of(annotation: Any, key: str | int) -> Any:
    """The type of what stands under a key of a mapping or list, or None."""
    for kind in members_of(annotation):
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is dict and isinstance(key, str):
            return arguments[1]
        if origin is list and isinstance(key, int):
            return arguments[0]
        if origin is tuple and isinstance(key, int):
            return arguments[0] if arguments[-1] is Ellipsis else arguments[min(key, len(arguments) - 1)]
    return None


def field_of(model: type[BaseModel], key: str) -> FieldInfo | None:
    """The field of that name."""
    return model.model_fields.get(key)


def _one(kind: Any, metadata: Sequence[Any], all_bounds: bool) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin is list:
        return f"a list of {_PLURAL.get(arguments[0], 'values')}"
    if origin is tuple:
        number = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return f"a list of {number}{_PLURAL.get(arguments[0], 'values')}"
    if origin is dict:
        return f"a mapping of texts to {_PLURAL.get(arguments[1], 'values')}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a mapping with some of {', '.join(kind.model_fields)}"
    return _SIMPLE.get(kind, str(kind)) + (_bounds(metadata, all_bounds) if kind in (int, float, str) else "")


def _bound(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bounds(metadata: Sequence[Any], all_bounds: bool) -> str:
    """` of at least 1`, ` above 0 and at most 1`; constraints are found by name, for pydantic wraps some of them."""
    words = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below", "pattern": "matching"}
    found = [
        f"{word} {_bound(getattr(constraint, name))}"
        for name, word in words.items()
        for constraint in metadata
        if getattr(constraint, name, None) is not None
        and (all_bounds or name != "le" or getattr(constraint, name) < _FAR)
    ]
    return f" {' and '.join(found)}" if found else ""
