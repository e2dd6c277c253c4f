"""Spreadsheets (.xlsx): the first sheet that is not empty, or the one named by `options: {sheet: ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.containers import Table
from galley.data.source import Record, damage_is_an_error, row_error, typed_option

OPTIONS = ("sheet", "header")


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """A sheet; rows have the numbers that the sheet shows."""
    wanted = typed_option(options, "sheet", str, None)
    has_header = typed_option(options, "header", bool, True)
    book = _open_book(path)
    try:
        names = [sheet.title for sheet in book.worksheets]  # chart sheets hold no rows
        if wanted is not None and wanted not in names:
            raise GalleyError(
                "data-options", f"{path}: there is no sheet {wanted!r}", hint=f"it has: {', '.join(names)}"
            )
        for name in [wanted] if wanted else names:
            first = next(_filled_rows(path, book, name), None)
            if first is not None:
                break
        else:
            raise GalleyError("data-empty", f"{path}: every sheet is empty")
    finally:
        book.close()
    columns = _columns(path, name, first[1], has_header)
    others = [other for other in names if other != name]
    notes = (f"{path}: read sheet {name!r}, not {', '.join(map(repr, others))}",) if others and not wanted else ()
    header_row = first[0] if has_header else 0
    used = tuple(column for column in columns if column)
    return Table(used, lambda: _records(path, name, columns, header_row), notes)


def _open_book(path: Path) -> Any:
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise GalleyError(
            "package-missing", f"{path}: reading spreadsheets needs openpyxl", hint="pip install 'galley-train[data]'"
        ) from error
    with _damage(path):
        return load_workbook(path, read_only=True, data_only=True)


def _damage(path: Path) -> AbstractContextManager[None]:
    return damage_is_an_error(path, "a spreadsheet", hint="save it as .xlsx or .csv")


def _filled_rows(path: Path, book: Any, name: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Rows with at least one filled cell, with their numbers."""
    with _damage(path):
        sheet = book[name]
        sheet.reset_dimensions()  # other programs write wrong sizes into the file
        for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
            if any(cell is not None and cell != "" for cell in cells):
                yield number, cells


def _columns(path: Path, sheet: str, first: tuple[Any, ...], has_header: bool) -> list[str]:
    """A name per column of the sheet; empty for columns without one, which are not read."""
    if not has_header:
        return [f"column_{number}" for number in range(1, len(first) + 1)]
    names = ["" if cell is None else str(cell).strip() for cell in first]
    named = [name for name in names if name]
    if len(set(named)) != len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise GalleyError("data-columns", f"{path}, sheet {sheet!r}: two columns are named {twice!r}")
    return names


def _records(path: Path, sheet: str, columns: list[str], header_row: int) -> Iterator[Record]:
    book = _open_book(path)
    try:
        for number, cells in _filled_rows(path, book, sheet):
            if number == header_row:
                continue
            fields: dict[str, Any] = {}
            for position, cell in enumerate(cells):
                name = columns[position] if position < len(columns) else ""
                if name:
                    fields[name] = cell
                elif cell is not None and cell != "":
                    raise row_error(
                        f"{path}, sheet {sheet!r}",
                        number,
                        f"column {position + 1} has no name in the header, but this row fills it",
                        [*cells],
                    )
            yield Record(number, {name: fields.get(name) for name in columns if name})
    finally:
        book.close()
