"""Parquet files, through pyarrow, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.containers import Table
from galley.data.source import Record, damage_is_an_error, decoded

OPTIONS = ()
_BATCH_ROWS = 4096


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """A Parquet file; rows count from 1."""
    file = _open_file(path)
    try:
        columns = tuple(file.schema_arrow.names)
    finally:
        file.close()
    return Table(columns, lambda: _records(path))


def _open_file(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise GalleyError(
            "package-missing", f"{path}: reading Parquet needs pyarrow", hint="pip install 'galley-train[data]'"
        ) from error
    with damage_is_an_error(path, "a Parquet file"):
        return pq.ParquetFile(path)


def _records(path: Path) -> Iterator[Record]:
    file = _open_file(path)
    number = 0
    try:
        with damage_is_an_error(path, "a Parquet file"):
            binary = [column.name for column in file.schema_arrow if "binary" in str(column.type)]
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for fields in batch.to_pylist():
                    number += 1
                    for name in binary:
                        fields[name] = _as_text(fields[name])
                    yield Record(number, fields)
    finally:
        file.close()


def _as_text(value: Any) -> Any:
    """Binary values as text where they are UTF-8, as programs store it that know no text columns; also inside lists."""
    if isinstance(value, bytes):
        text = decoded(value)
        return value if text is None else text
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return {key: _as_text(item) for key, item in value.items()} if isinstance(value, dict) else value
