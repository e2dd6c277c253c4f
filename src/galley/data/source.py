"""The seam of reading: a source gives records, a format turns records into examples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from galley.base import GalleyError, Registry
from galley.data.dataset import Scorer
from galley.data.examples import Example

SAMPLE_RECORDS = 20
"""Records that a format may look at to recognise itself."""


class Record(NamedTuple):
    """One row as it stands in the source. `number` is what a person would look for: line, sheet row or item."""

    number: int
    fields: Mapping[str, Any]


class Row(NamedTuple):
    """One example and the number of the record that it came from."""

    number: int
    example: Example


@dataclass(frozen=True)
class Source:
    """One place that rows come from: a file, a table of a hub dataset, a generated task.

    Args:
        name: what messages call it.
        scheme: `file`, `hub` or the name of a generator.
        records: opens the records from the start, each time it is called; None when the file is no table of records.
        columns: names of the fields, in order; empty when the file is no table.
        path: the file or folder, where there is one.
        scorer: the task's own scorer, when the source brings one.
        unseen: for generated sources, gives a source of that many rows that shares nothing with this one.
        notes: what a user should know about how it was opened.
    """

    name: str
    scheme: str = "file"
    records: Callable[[], Iterator[Record]] | None = None
    columns: tuple[str, ...] = ()
    path: Path | None = None
    scorer: Scorer | None = None
    unseen: Callable[[int], Source] | None = None
    notes: tuple[str, ...] = ()
    sample: tuple[Record, ...] = field(default=(), repr=False)

    @property
    def suffix(self) -> str:
        """Lower-case suffix without the dot and without `.gz`; empty for folders and for what is no file."""
        if self.path is None or self.path.is_dir():
            return ""
        return file_suffix(self.path)

    def table(self) -> Iterator[Record]:
        """The records.

        Raises:
            GalleyError: `data-format` when the source holds none, because the user named a wrong format.
        """
        if self.records is None:
            raise not_this_format(self.name, "a table of records")
        return self.records()


@dataclass
class Request:
    """What the reader asks of a format, and where the format says what it did.

    Args:
        task: `chat`, `complete` or `classify`.
        columns: role to column name as written by the user; empty to guess.
        options: the user's settings of the format, checked with `take_options`.
        num_sources: how many sources are read together.
    """

    task: str
    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    num_sources: int = 1
    used_columns: dict[str, str] = field(default_factory=dict)
    """Role to column, filled by the format."""
    notes: list[str] = field(default_factory=list)
    """Filled by the format; each is said once."""
    counts: dict[str, int] = field(default_factory=dict)
    """Things that happened to rows, by the sentence that says so with `{count}` in it; filled by the format."""

    def count(self, sentence: str) -> None:
        """Count one more case of what the sentence says."""
        self.counts[sentence] = self.counts.get(sentence, 0) + 1


class Format(Protocol):
    """One layout of examples. A file `data/formats/NAME.py` with `FORMAT` adds one."""

    name: str
    tasks: tuple[str, ...]
    """Tasks whose examples this format can give."""
    options: tuple[str, ...]
    """Names of the settings that it reads from `data.options`, beside those of the file kind."""

    def detect(self, source: Source, task: str) -> float:
        """How sure the format is, from 0 (cannot be) to 1 (certain), looking at columns and the first records."""

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """The examples, in order. Rows without anything to learn are given too: the reader counts and drops them."""


FORMATS: Registry[Format] = Registry("galley.data.formats", attribute="FORMAT", kind="format")


def file_suffix(path: Path) -> str:
    """`csv` for `a.CSV` and for `a.csv.gz`."""
    suffixes = [suffix[1:].lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == "gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def with_sample(source: Source) -> Source:
    """The source with its first records read, for formats to recognise."""
    if source.records is None:
        return source
    sample = tuple(islice(source.records(), SAMPLE_RECORDS))
    columns = source.columns or tuple(dict.fromkeys(name for record in sample for name in record.fields))
    return Source(**{**vars(source), "sample": sample, "columns": columns})


def not_this_format(name: str, wanted: str) -> GalleyError:
    """The user named a format that this source cannot have."""
    return GalleyError(
        "data-format", f"{name}: this is not {wanted}", hint="leave `format:` out to have the format recognised"
    )


@contextmanager
def damage_is_an_error(name: object, wanted: str, *, hint: str = "") -> Iterator[None]:
    """Turn whatever a library raises over a damaged file into one clear error; they raise almost anything.

    Raises:
        GalleyError: `data-format`.
    """
    try:
        yield
    except GalleyError:
        raise
    except Exception as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise GalleyError(
            "data-format", f"{name}: this is not {wanted} that can be read ({said})", hint=hint
        ) from error


def row_error(name: str, number: int, message: str, row: object, *, hint: str = "") -> GalleyError:
    """An error about one row that shows it.

    Args:
        name: the file or source.
        number: line, sheet row or item.
        message: which field is wrong, what was expected and what was found.
        row: the row; shortened when long.
        hint: what to do about it.
    """
    return GalleyError("data-row", f"{name}, row {number}: {message}\n  the row: {shorten(row)}", hint=hint)


def field_error(name: str, record: Record, column: str, expected: str, *, hint: str = "") -> GalleyError:
    """An error about one field of a row."""
    if column not in record.fields:
        message = f"field {column!r} is missing, expected {expected}"
    else:
        message = f"field {column!r}: expected {expected}, found {kind_of(record.fields[column])}"
    return row_error(name, record.number, message, dict(record.fields), hint=hint)


def kind_of(value: object) -> str:
    """A value's kind and, where short, the value itself, in plain words."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, str):
        return f"the text {shorten(value, 60)}" if value else "an empty text"
    if isinstance(value, Mapping):
        return f"a mapping with the keys {', '.join(map(str, value)) or '(none)'}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes that are not UTF-8 text"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} items"
    return shorten(value, 60)


def shorten(row: object, limit: int = 300) -> str:
    """One line of JSON of at most that many characters."""
    text = json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 2]} …"


def note_unused(source: Source, request: Request, used: Collection[str]) -> None:
    """Say which columns of a source nothing reads."""
    unused = [column for column in source.columns if column not in used]
    if unused:
        request.notes.append(f"{source.name}: columns that are not used: {', '.join(unused)}")


def as_text(value: object) -> str | None:
    """A cell as text: numbers as people write them, nothing as an empty text; None for lists, mappings and binary."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, bytes):
        return decoded(value)
    if isinstance(value, (list, tuple, Mapping)):
        return None
    return str(value)


def decoded(value: bytes) -> str | None:
    """Binary cells as the UTF-8 text that some programs store in them; None for anything else."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def cell_text(name: str, record: Record, column: str) -> str:
    """The text of one cell.

    Raises:
        GalleyError: `data-row` when the cell holds a list, a mapping or binary data.
    """
    value = record.fields.get(column, "")
    if isinstance(value, str):
        return value
    text = as_text(value)
    if text is None:
        raise field_error(name, record, column, "a text")
    return text


def check_options(options: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    """Refuse settings that nothing reads.

    Raises:
        GalleyError: `data-options`, naming the setting and those that exist.
    """
    for key in options:
        if key not in allowed:
            raise GalleyError(
                "data-options",
                f"data.options.{key}: {where} has no such setting",
                hint=f"it has: {', '.join(sorted(allowed))}" if allowed else "it has no settings",
            )


def typed_option(options: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    """A setting, or its default when it is not given.

    Raises:
        GalleyError: `data-options` when its type is wrong.
    """
    value = options.get(key, default)
    if value is default:
        return value
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        example = _EXAMPLES.get(key) if default is None else json.dumps(default)
        raise GalleyError(
            "data-options",
            f"data.options.{key}: {value!r} is not {_KINDS[kind]}",
            hint=f"for example {key}: {example}" if example else "",
        )
    return value


_EXAMPLES = {
    "delimiter": '";"',
    "encoding": "cp1252",
    "sheet": "Sheet1",
    "config": "main",
    "document": "paragraph",
    "size": "28",
}
"""For settings whose default is to find out."""
_KINDS: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false", dict: "a mapping"}
