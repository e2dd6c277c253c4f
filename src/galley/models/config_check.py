"""Whether a config.json can be of a model at all: its family is one that transformers knows, its sizes are sizes."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from galley.base import GalleyError

_WORD = re.compile(r'"([\w.\-]+)"')
_MOST = 10**9
"""More than any number of a config; larger ones only make sums overflow."""
_HINT = "the file is damaged or was edited by hand: fetch the model again"


@functools.cache
def known_families() -> frozenset[str]:
    """Every `model_type` that transformers has a config for, read from its files without importing it.

    With some words beside them, such as names of its modules; empty where transformers is not found.
    """
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    folder = Path(next(iter(spec.submodule_search_locations))) / "models" / "auto"
    names: set[str] = set()
    for file in ("auto_mappings.py", "configuration_auto.py"):  # in newer and in older versions
        path = folder / file
        if path.is_file():
            names.update(_WORD.findall(path.read_text(encoding="utf-8")))
    return frozenset(name for name in names if not name.endswith("Config"))


def check_family(config: Mapping[str, Any], reference: str) -> None:
    """Refuse a model that nobody can build.

    Raises:
        GalleyError: `model-invalid` when the config names no family, `model-unsupported` when transformers has none of
            that name.
    """
    family, architectures = config.get("model_type"), config.get("architectures") or []
    if family is None:
        raise GalleyError("model-invalid", f"{reference}: config.json names no model_type", hint=_HINT)
    if not isinstance(family, str):
        raise _wrong(reference, "model_type", family, "a text")
    if not isinstance(architectures, list):
        raise _wrong(reference, "architectures", architectures, "a list of texts")
    known = known_families()
    if known and family not in known:
        import difflib

        near = difflib.get_close_matches(family, known, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise GalleyError(
            "model-unsupported",
            f"{reference}: config.json has the model_type {_shown(family)}, which transformers does not know here",
            hint=f"{guess}code that a model brings along is never run; a newer transformers may know it",
        )


def check_size(config: Mapping[str, Any], names: Iterable[str], reference: str, *, least: int) -> None:
    """Refuse what can be no size.

    Args:
        config: the config, or its part about text.
        names: what families call this size; the first that is there counts.
        reference: the words of the recipe, for the message.
        least: the smallest size there is.

    Raises:
        GalleyError: `model-invalid`.
    """
    name = next((name for name in names if config.get(name) is not None), None)
    if name is None:
        return
    value = config[name]
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, int) or isinstance(item, bool) or not least <= item <= _MOST:
            raise _wrong(reference, name, value, f"a whole number of at least {least}")


def _wrong(reference: str, name: str, value: Any, wanted: str) -> GalleyError:
    message = f"{reference}: config.json has {name}: {_shown(value)}; expected {wanted}"
    return GalleyError("model-invalid", message, hint=_HINT)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."
