"""JSON: an array of objects, an object that holds one such array, or one object a line (JSONL)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from galley.base import GIB, GalleyError, format_bytes
from galley.data.containers import Table
from galley.data.containers.csv import encoding_error
from galley.data.sniff import encoding_of, open_bytes, open_text
from galley.data.source import Record, kind_of, row_error, shorten

OPTIONS = ("encoding",)
MAX_BYTES = 2 * GIB
"""Largest file that is read as one JSON value; JSONL has no limit."""
_SHAPE = 'one JSON object a line, such as {"question": "...", "answer": "..."}'


def open_table(path: Path, suffix: str, options: Mapping[str, Any]) -> Table:
    """A `.json`, `.jsonl` or `.ndjson` file; what it holds decides, not its name. Lines or items count from 1."""
    encoding = encoding_of(path, options)
    first = _first_sign(path, encoding)
    if not first:
        raise GalleyError("data-empty", f"{path}: the file is empty")
    notes = () if encoding in ("utf-8", "utf-8-sig") or options.get("encoding") else (f"{path}: read as {encoding}",)
    if suffix != "json" and first == "{":
        return Table((), lambda: _lines(path, encoding), notes)
    found = _whole(path, encoding)
    if found is None:
        return Table((), lambda: _lines(path, encoding), notes)
    return Table((), lambda: items(path, found), notes)


def _first_sign(path: Path, encoding: str) -> str:
    try:
        with open_text(path, encoding) as file:
            while chunk := file.read(4096):
                if stripped := chunk.lstrip("\ufeff \t\r\n"):
                    return stripped[0]
    except (UnicodeError, LookupError) as error:
        raise encoding_error(path, encoding, error) from error
    return ""


def _whole(path: Path, encoding: str) -> list[Any] | None:
    """The array in a file that is one JSON value; None when the file is JSONL."""
    with open_bytes(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise GalleyError(
            "data-format",
            f"{path}: larger than {format_bytes(MAX_BYTES)}, too large to read as one JSON value",
            hint=f"write it as JSONL: {_SHAPE}",
        )
    try:
        text = data.decode(encoding).lstrip("\ufeff")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise GalleyError(
            "data-format",
            f"{path}, line {error.lineno}, column {error.colno}: this is not valid JSON ({error.msg})",
            hint=f"expected an array of objects, or {_SHAPE}",
        ) from error
    except UnicodeError as error:
        raise encoding_error(path, encoding, error) from error
    except (ValueError, RecursionError) as error:
        raise GalleyError("data-format", f"{path}: the JSON cannot be read: {_fault(error)}") from error
    found = array_in(path, value)
    if _may_be_broken(text):
        for number, item in enumerate(found, 1):
            refuse_half_characters(path, number, item)
    return found


def array_in(path: Path, value: Any) -> list[Any]:
    """The list of records in a parsed file: itself, the one list that it holds, or the value as the only record."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        lists = [name for name, item in value.items() if isinstance(item, list) and item and isinstance(item[0], dict)]
        # An object with messages is itself the one row: {"messages": [...]}.
        if len(lists) == 1 and not {"role", "from"} & value[lists[0]][0].keys():
            found: list[Any] = value[lists[0]]
            return found
        if not lists or {"role", "from"} & value[lists[0]][0].keys():
            return [value]
        fault = f"an object with several lists: {', '.join(lists)}"
    else:
        fault = kind_of(value)
    raise GalleyError(
        "data-format",
        f"{path}: expected an array of objects or an object holding one, found {fault}",
        hint=f"keep one list, or write {_SHAPE}",
    )


def items(path: Path, found: list[Any]) -> Iterator[Record]:
    """The records of a parsed list, counted from 1."""
    for number, item in enumerate(found, 1):
        if not isinstance(item, dict):
            raise row_error(str(path), number, f"expected an object, found {kind_of(item)}", item)
        yield Record(number, item)


def _lines(path: Path, encoding: str) -> Iterator[Record]:
    number = 0
    try:
        with open_text(path, encoding) as file:
            for number, line in enumerate(file, 1):
                text = line.strip() if number > 1 else line.lstrip("\ufeff").strip()
                if text:
                    fields = _parse_line(path, number, text)
                    if _may_be_broken(text):
                        refuse_half_characters(path, number, fields)
                    yield Record(number, fields)
    except UnicodeError as error:
        raise encoding_error(path, encoding, error) from error


def _fault(error: Exception) -> str:
    """What parsing raised, in words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with thousands of digits"


def _may_be_broken(text: str) -> bool:
    """Whether the JSON writes any half of a character; two that belong together are one character."""
    return "\\ud" in text or "\\uD" in text


def refuse_half_characters(path: Path, number: int, item: Any) -> None:
    """Refuse a record with a lone surrogate, which no file, tokenizer or terminal takes.

    Raises:
        GalleyError: `data-row`, naming the field.
    """
    for name, value in item.items() if isinstance(item, dict) else ():
        try:
            json.dumps([name, value], ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            what = (
                f"field {shorten(name, 60)}: expected text, found half a character (a lone surrogate such as \\ud800)"
            )
            hint = "characters beyond \\uffff are written as themselves or as two \\u escapes in a row"
            raise row_error(str(path), number, what, item, hint=hint) from None


def _parse_line(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"this line is not valid JSON ({_fault(error)})"
        raise row_error(str(path), number, what, text, hint=f"expected {_SHAPE}") from error
    if not isinstance(value, dict):
        raise row_error(
            str(path), number, f"expected an object, found {kind_of(value)}", value, hint=f"expected {_SHAPE}"
        )
    return value
