"""Files that hold tables of records: one file a kind, found by the suffix of the data file."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from galley.data.source import Record

__all__ = ["SUFFIXES", "Table", "open_table", "table_options"]


class Table(NamedTuple):
    """A table that can be read from the start as often as wanted."""

    columns: tuple[str, ...]
    records: Callable[[], Iterator[Record]]
    notes: tuple[str, ...] = ()


SUFFIXES = {
    "csv": "csv",
    "tsv": "csv",
    "tab": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "xlsx": "xlsx",
    "xlsm": "xlsx",
    "parquet": "parquet",
    "pq": "parquet",
    "yml": "yaml",
    "yaml": "yaml",
}
"""File suffix to the module that reads it."""


def _module(suffix: str) -> Any:
    return importlib.import_module(f"{__name__}.{SUFFIXES[suffix]}")


def table_options(suffix: str) -> Sequence[str]:
    """Names of the settings that files of this suffix take in `data.options`."""
    return cast("Sequence[str]", _module(suffix).OPTIONS)


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """Open a file as a table of records.

    Raises:
        GalleyError: `data-format`, `data-encoding`, `data-columns`, `data-row` or `package-missing`.
    """
    return cast("Table", _module(suffix).open_table(path, suffix, options))
