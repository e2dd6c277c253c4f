"""Wrappers by name: `data.options.wrappers: {time-limit: {steps: 200}, frame-stack: {frames: 4}}`, inside first.

A file `NAME.py` with `WRAPPER` adds one; installed packages add theirs through the entry-point group
`galley.data.environments.wrappers`. What a wrapper remembers must follow from the seed and the actions since the last
`reset`, because that is how a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from galley.base import GalleyError, Registry

if TYPE_CHECKING:
    import gymnasium


class WrapperConfig(BaseModel):
    """Base of the settings of wrappers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


C = TypeVar("C", bound=WrapperConfig)


def _nothing(options: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Wrapper(Generic[C]):
    """One kind of wrapper.

    Args:
        name: used in recipes.
        Config: its settings.
        wrap: puts it around an environment; raises `environment-unsupported` where it does not fit.
        needs: arguments that the environment must be made with, by name.
    """

    name: str
    Config: type[C]
    wrap: Callable[[gymnasium.Env[Any, Any], C], gymnasium.Env[Any, Any]]
    needs: Callable[[C], Mapping[str, Any]] = _nothing


registry: Registry[Wrapper[Any]] = Registry(__name__, attribute="WRAPPER", kind="wrapper")


def chosen_wrappers(asked: Mapping[str, Mapping[str, Any]]) -> list[tuple[Wrapper[Any], Any]]:
    """The wrappers of a recipe with their checked settings, from the inside out.

    Raises:
        GalleyError: `name-unknown` or `data-options`, with the nearest name.
    """
    return [_chosen(name, options) for name, options in asked.items()]


def _chosen(name: str, options: Mapping[str, Any]) -> tuple[Wrapper[Any], Any]:
    kind = registry.get(name)
    try:
        return kind, kind.Config.model_validate(dict(options))
    except ValidationError as error:
        raise _bad_option(kind, error) from error


def _bad_option(kind: Wrapper[Any], error: ValidationError) -> GalleyError:
    import difflib

    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a typing error hides the name
    key = ".".join(str(part) for part in first["loc"])
    place = f"data.options.wrappers.{kind.name}.{key}"
    known = list(kind.Config.model_fields)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        return GalleyError(
            "data-options",
            f"{place}: there is no such setting",
            hint=f"{guess}it has: {', '.join(known)}" if known else "it has no settings",
        )
    if first["type"] == "missing":
        return GalleyError("data-options", f"{place} must be given", hint=f"{{{kind.name}: {{{key}: ...}}}}")
    return GalleyError("data-options", f"{place}: {first['input']!r}: {first['msg']}")
