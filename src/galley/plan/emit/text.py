"""Plain writing of YAML, TOML and flags: flat mappings, lists and nested mappings, as every parser reads them alike."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any


def number(value: float) -> str:
    """As YAML 1.1 reads it too, which takes `1e-05` for a word: `1.0e-05`."""
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}e{power}" if exponent else text


def scalar(value: Any) -> str:
    """A value that is neither list nor mapping; words in quotes where they could be read as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return str(value)
    plain = value.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    reserved = value.lower() in ("yes", "no", "on", "off", "true", "false", "null", "~", "")
    return value if plain.isalnum() and not reserved and not value[0].isdigit() else json.dumps(value)


def yaml(values: Mapping[str, Any], notes: list[str], title: str) -> str:
    """A file with the notes as comments on top."""
    return comments([title, *notes]) + "\n".join(_lines(values, "")) + "\n"


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")] if value else [f"{indent}{key}: {{}}"]
        elif isinstance(value, list | tuple):
            lines.append(f"{indent}{key}:")
            for item in value:
                if isinstance(item, Mapping):
                    inner = _lines(item, indent + "    ")
                    lines += [f"{indent}  - {inner[0].strip()}", *inner[1:]]
                else:
                    lines.append(f"{indent}  - {scalar(item)}")
        else:
            lines.append(f"{indent}{key}: {scalar(value)}")
    return lines


def toml(tables: Mapping[str, Mapping[str, Any]], notes: list[str], title: str) -> str:
    """Tables of plain values."""
    blocks = [comments([title, *notes])]
    for name, values in tables.items():
        blocks.append("\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]) + "\n")
    return "\n".join(blocks)


def _toml(value: Any) -> str:
    return scalar(value) if isinstance(value, bool | int | float) else json.dumps(value)


def comments(notes: list[str]) -> str:
    """Each note as lines that begin with `#`."""
    return "".join(
        textwrap.fill(note, 100, initial_indent="# ", subsequent_indent="#   ", break_long_words=False) + "\n"
        for note in notes
    )
