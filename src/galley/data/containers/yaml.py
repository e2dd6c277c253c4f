"""YAML files: a list of mappings, or a mapping of lists (as dialogue corpora are written)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.containers import Table
from galley.data.containers.csv import encoding_error
from galley.data.containers.json import array_in, items, refuse_half_characters
from galley.data.sniff import encoding_of, open_text

OPTIONS = ("encoding",)


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """A YAML file. A mapping without a list of mappings is one record, which is how a corpus file arrives."""
    from ruamel.yaml import YAML

    encoding = encoding_of(path, options)
    try:
        with open_text(path, encoding) as file:
            text = file.read()
    except (UnicodeError, LookupError) as error:
        raise encoding_error(path, encoding, error) from error
    try:
        value = YAML(typ="safe").load(text)
    except Exception as error:  # beside its own errors, the library lets through whatever building a value raised
        raise GalleyError("data-format", f"{path}: this is not valid YAML ({error})") from error
    if value is None:
        raise GalleyError("data-empty", f"{path}: the file is empty")
    found = [_named(item) for item in array_in(path, _named(value))]
    for number, item in enumerate(found, 1):
        refuse_half_characters(path, number, item)
    return Table((), lambda: items(path, found))


def _named(item: Any) -> Any:
    """The item with texts as keys, where YAML allows any value."""
    return {str(key): value for key, value in item.items()} if isinstance(item, dict) else item
