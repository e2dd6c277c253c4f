"""Tables in text files: CSV, TSV and relatives, whatever their delimiter and encoding."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from galley.base import GalleyError
from galley.data.containers import Table
from galley.data.sniff import HEAD_BYTES, Dialect, encoding_of, nul_error, open_text, sniff_dialect
from galley.data.source import Record, row_error, shorten, typed_option

OPTIONS = ("delimiter", "encoding", "header")
MAX_CELL = 1 << 28
"""Characters in one cell; more is a quote that was never closed."""


class _Layout(NamedTuple):
    """Everything found out about a file from its head."""

    path: Path
    encoding: str
    dialect: Dialect
    columns: list[str]
    has_header: bool


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """A delimited text file; rows are numbered as a spreadsheet shows them, the header being row 1."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))  # the limit is the whole process's: only ever raised
    encoding = encoding_of(path, options)
    delimiter = typed_option(options, "delimiter", str, None)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\\\r\n\0'):
        raise GalleyError(
            "data-options",
            f"data.options.delimiter: {shorten(delimiter, 60)} is not one character that can divide fields",
            hint='for example delimiter: ";"',
        )
    head = _head(path, encoding)
    dialect = sniff_dialect(head[:HEAD_BYTES], whole=len(head) <= HEAD_BYTES, suffix=suffix, delimiter=delimiter)
    has_header = typed_option(options, "header", bool, True)
    columns = _columns(path, dialect, head, has_header)
    layout = _Layout(path, encoding, dialect, columns, has_header)
    notes = () if encoding in ("utf-8", "utf-8-sig") or options.get("encoding") else (f"{path}: read as {encoding}",)
    return Table(tuple(columns), lambda: _records(layout), notes)


def _head(path: Path, encoding: str) -> str:
    try:
        with open_text(path, encoding) as file:
            head = file.read(HEAD_BYTES + 1)
    except (UnicodeError, LookupError) as error:
        raise encoding_error(path, encoding, error) from error
    if "\0" in head:
        raise nul_error(path)
    return head


def encoding_error(path: Path, encoding: str, error: Exception) -> GalleyError:
    """The file is not in the encoding that it was read with."""
    return GalleyError(
        "data-encoding",
        f"{path}: cannot be read as {encoding} ({error})",
        hint="name the right one with `data: {path: ..., options: {encoding: ...}}`, or save the file as UTF-8",
    )


def _columns(path: Path, dialect: Dialect, head: str, has_header: bool) -> list[str]:
    """Column names without surrounding white space."""
    first: list[str] = []
    with contextlib.suppress(csv.Error):  # reported with its row when the rows are read
        first = next((record for record in dialect.reader(io.StringIO(head, newline="")) if any(record)), [])
    if not has_header:
        return [f"column_{number}" for number in range(1, len(first) + 1)]
    names = [name.strip().lstrip("\ufeff") for name in first]
    while names and not names[-1]:
        names.pop()  # spreadsheets export empty columns on the right
    if not names:
        raise GalleyError("data-empty", f"{path}: the file is empty", hint="its first row should name the columns")
    for number, name in enumerate(names, 1):
        if not name or name in names[: number - 1]:
            fault = f"two columns are named {name!r}" if name else f"column {number} has no name"
            raise GalleyError(
                "data-columns",
                f"{path}, row 1: {fault} in the header {shorten(names)}",
                hint="the first row should name every column once; is there no header? `options: {header: false}`",
            )
    return names


def _records(layout: _Layout) -> Iterator[Record]:
    path, columns = layout.path, layout.columns
    number, lines_before = 0, 0
    pending_header = layout.has_header
    try:
        with open_text(path, layout.encoding) as file:
            reader = layout.dialect.reader(file)
            for cells in reader:
                number += 1
                if pending_header:
                    pending_header = not any(cells)
                elif len(cells) == len(columns):
                    yield Record(number, dict(zip(columns, cells, strict=True)))
                elif cells:  # a line without anything is no row
                    fitted = _fit(path, number, lines_before + 1, cells, columns)
                    yield Record(number, dict(zip(columns, fitted, strict=True)))
                lines_before = reader.line_num
    except csv.Error as error:
        raise row_error(
            str(path),
            number + 1,
            f"the quotes do not match ({error}); the row begins on line {lines_before + 1}",
            _lines(path, layout.encoding, lines_before),
            hint='a quote inside a quoted cell is written twice: "he said ""yes"""',
        ) from error
    except UnicodeError as error:
        raise encoding_error(path, layout.encoding, error) from error


def _lines(path: Path, encoding: str, before: int) -> str:
    """The two lines after that many, to show what could not be parsed."""
    with open_text(path, encoding) as file:
        return "".join(islice(file, before, before + 2))


def _fit(path: Path, number: int, line: int, cells: list[str], columns: list[str]) -> list[str]:
    """Cells cut to the columns when only empty ones are too many."""
    fitted = list(cells)
    while len(fitted) > len(columns) and not fitted[-1].strip():
        fitted.pop()
    if not any(fitted):
        return [""] * len(columns)
    if len(fitted) == len(columns):
        return fitted
    if len(fitted) > len(columns):
        fault = f"field {len(columns) + 1} has no column: expected {len(columns)} fields, found {len(fitted)}"
        hint = "put quotes around a cell that contains the delimiter or a line break"
    else:
        missing = columns[len(fitted)]
        fault = (
            f"field {missing!r} is missing: expected {len(columns)} fields ({', '.join(columns)}), found {len(fitted)}"
        )
        hint = "write an empty cell as two delimiters in a row"
    raise row_error(str(path), number, f"{fault}; the row begins on line {line}", cells, hint=hint)
