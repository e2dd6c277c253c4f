"""Mistakes in a recipe, collected so that a person sees all of them at once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from galley.base import GalleyError

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands in the recipe, e.g. `("budget", "epochs")`."""


@dataclass(frozen=True)
class Problem:
    """One mistake.

    Args:
        path: where it stands in the recipe.
        what: what is wrong, what is allowed, and the nearest allowed word.
    """

    path: Path
    what: str


def dotted(path: Path) -> str:
    """`override.targets[0]` for `("override", "targets", 0)`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def show(value: Any) -> str:
    """A value as a person wrote it, shortened to fit in a line."""
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, float) and not math.isfinite(value):
        text = ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):
            text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that a slip of the hand would turn into this one."""
    by_form = {_form(name): name for name in allowed}
    if _form(word) in by_form:
        return by_form[_form(word)]
    import difflib

    close = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=0.7)
    return by_form[close[0]] if close else None


def _form(word: str) -> str:
    """Dashes, underscores and capitals are the commonest slips."""
    return word.lower().replace("-", "_").replace(" ", "_")


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    near = nearest(word, allowed)
    return f"; did you mean {near}?" if near is not None else ""


def raise_all(lines: list[str], name: str) -> None:
    """Raise one error for all mistakes, if there are any.

    Args:
        lines: one mistake each, as `file:line: key: what is wrong`.
        name: the recipe's file name.

    Raises:
        GalleyError: `recipe-invalid`.
    """
    if not lines:
        return
    count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    listing = "\n".join(f"  {line}" for line in lines)
    raise GalleyError(
        "recipe-invalid",
        f"{count} in {name}\n{listing}",
        hint="`galley schema --keys` lists every key with what it takes",
    )
