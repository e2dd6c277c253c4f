"""Find out how a text file is encoded and how a table in it is delimited, from its bytes."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from galley.base import GalleyError
from galley.data.source import shorten, typed_option

HEAD_BYTES = 1 << 18
"""Bytes from the start of a file that guesses are made from."""
DELIMITERS = (",", ";", "\t", "|")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_FOR_FILES = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"})
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
# The most frequent characters of Chinese prose and its punctuation: in any real Chinese text they are over a tenth,
# while another encoding read as GB18030 shows them by chance only.
_COMMON_CHINESE = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经"
    "么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知"
    "全三又关点正业外将两高间由问很最重什怎哪吗请谁几题答，。？！：；、（）“”《》"
)


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked when its name ends in `.gz`."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a file raises when the system refuses it or its packing is damaged."""


def unreadable(name: str, error: Exception) -> GalleyError:
    """One of the `UNREADABLE` errors in our words."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return GalleyError("data-not-found", f"{name}: cannot be read ({error})")
    return GalleyError("data-format", f"{name}: this is not a gzip file that can be read ({error})", hint="unpack it")


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """At most `size` bytes from the start of the file."""
    with open_bytes(path) as file:
        return file.read(size)


def detect_encoding(path: Path) -> str:
    """The encoding of a text file, as Python names it.

    A byte-order mark decides; else a file that is valid UTF-8 throughout is UTF-8 (an accident is practically
    impossible); else UTF-16 by its zero bytes, GB18030 by the frequency of common Chinese characters, Windows-1252 by
    single high bytes between letters; else `charset-normalizer` is asked.

    Raises:
        GalleyError: `data-encoding` when no guess is sound.
    """
    head = read_head(path)
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    if b"\0" not in head and _is_utf8(path):
        return "utf-8"
    guess = _guess(head)
    if b"\0" in head and (guess is None or b"\0" in _reencoded(head, guess)):
        raise nul_error(path)
    if guess is None:
        raise GalleyError(
            "data-encoding",
            f"{path}: this is not UTF-8 text, and its encoding could not be recognised",
            hint="name it with `data: {path: ..., options: {encoding: cp1252}}`, or save the file as UTF-8",
        )
    return guess


def encoding_of(path: Path, options: Mapping[str, Any]) -> str:
    """The encoding that `options: {encoding: ...}` names, or the one that the file shows.

    Raises:
        GalleyError: `data-options` for one that is not for files, and as `detect_encoding`.
    """
    named: str | None = typed_option(options, "encoding", str, None)
    if not named:
        return detect_encoding(path)
    if "\0" not in named and _codec(named) not in _NOT_FOR_FILES:
        return named  # an unknown one is reported when the file is read with it
    raise GalleyError(
        "data-options",
        f"data.options.encoding: {shorten(named, 60)} is no encoding of files",
        hint="for example encoding: cp1252",
    )


def _codec(named: str) -> str:
    """Python's own name of an encoding; empty when it knows none."""
    try:
        return codecs.lookup(named).name.replace("_", "-")
    except LookupError:
        return ""


def nul_error(path: Path) -> GalleyError:
    """The file holds NUL bytes, which no text does."""
    return GalleyError(
        "data-encoding",
        f"{path}: holds NUL bytes, is it a binary file?",
        hint="its name should end as its kind does; text is best saved as UTF-8",
    )


def _reencoded(head: bytes, encoding: str) -> bytes:
    """The head as UTF-8."""
    return head.decode(encoding, errors="ignore").encode("utf-8", errors="ignore")


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open_bytes(path) as file:
            while chunk := file.read(1 << 20):
                decoder.decode(chunk)
                if b"\0" in chunk:
                    raise nul_error(path)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _guess(head: bytes) -> str | None:
    """An encoding for bytes that are not UTF-8 and have no mark."""
    zeros = head.count(0) * 4 > len(head)
    if zeros and len(head) >= 2:
        # Latin letters in UTF-16 have their zero byte second (little endian) or first (big endian).
        return "utf-16-le" if head[1::2].count(0) >= head[::2].count(0) else "utf-16-be"
    if b"\0" in head:  # among bytes that are UTF-8 otherwise, they are damage
        return None if _decodes(head, "utf-8") else _utf16_without_mark(head)
    if _looks_gb18030(head):
        return "gb18030"
    runs = [len(run) for run in _HIGH_RUN.findall(head)]
    if sum(length <= 2 for length in runs) >= 0.9 * len(runs) and _decodes(head, "cp1252"):
        return "cp1252"
    return _ask_charset_normalizer(head)


def _utf16_without_mark(head: bytes) -> str | None:
    even = head[: len(head) // 2 * 2]
    for name in ("utf-16-le", "utf-16-be"):
        if _decodes(even, name) and any(sign in even.decode(name, errors="ignore") for sign in ("\n", ",", "\t", ";")):
            return name
    return None


def _looks_gb18030(head: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("gb18030")()
    try:
        text = decoder.decode(head)  # not final: the head may end inside a character
    except UnicodeDecodeError:
        return False
    wide = [sign for sign in text if ord(sign) > 0x7F]
    return bool(wide) and sum(sign in _COMMON_CHINESE for sign in wide) >= 0.08 * len(wide)


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _ask_charset_normalizer(head: bytes) -> str | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    best = from_bytes(head).best()
    return None if best is None else best.encoding


def open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    """The file as text, line ends untouched, as the csv module wants it."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")


@dataclass(frozen=True)
class Dialect:
    """How a delimited table is written."""

    delimiter: str = ","
    quoting: int = csv.QUOTE_MINIMAL
    skip_space: bool = False
    escape: str | None = None

    def reader(self, lines: IO[str] | Iterator[str]) -> Any:
        """A csv reader that refuses malformed quotes instead of guessing."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=cast("Any", self.quoting),
            skipinitialspace=self.skip_space,
            escapechar=self.escape,
            doublequote=self.escape is None,
            strict=True,
        )


def sniff_dialect(head: str, *, whole: bool, suffix: str = "csv", delimiter: str | None = None) -> Dialect:
    """How a table is delimited, from its beginning.

    A dialect is sound when the header has at least two fields and every row as many. Of several sound ones the
    delimiter that the file's suffix promises wins, then the one with more columns. When none is sound the
    delimiter with the most fields in the header is taken, and the reader reports the row that does not fit.

    Args:
        head: the decoded beginning of the file.
        whole: whether that is the whole file (else its last record may be cut and is not looked at).
        suffix: `csv`, `tsv`, ...
        delimiter: the user's own choice; only the quoting is found out then.
    """
    promised = "\t" if suffix in ("tsv", "tab") else ","
    best: tuple[tuple[int, bool, bool, int], Dialect] | None = None
    for candidate in _candidates(head, (delimiter,) if delimiter else DELIMITERS):
        widths, readable = _widths(candidate, head, whole)
        if not widths:
            continue
        divides = widths[0] > 1
        sound = sum(width == widths[0] for width in widths) / len(widths) if divides and readable else 0
        # Whole tenths: one bad row far down should not make the header's clear delimiter lose to a worse guess.
        score = (int(sound * 10), divides, candidate.delimiter == promised, widths[0])
        if best is None or score > best[0]:
            best = (score, candidate)
    return best[1] if best else Dialect(delimiter or promised)


def _candidates(head: str, delimiters: tuple[str, ...]) -> Iterator[Dialect]:
    """Plain quoting first, for the first of equals wins."""
    for delimiter in delimiters:
        yield Dialect(delimiter)
        yield Dialect(delimiter, skip_space=True)
        if '\\"' in head:
            yield Dialect(delimiter, escape="\\")
        if delimiter == "\t":
            yield Dialect(delimiter, quoting=csv.QUOTE_NONE)


def _widths(dialect: Dialect, head: str, whole: bool) -> tuple[list[int], bool]:
    """Fields of each record in the head (empty ones beyond the header left out), and whether the quotes match."""
    widths: list[int] = []
    try:
        for record in dialect.reader(io.StringIO(head, newline="")):
            if not any(record):
                continue
            if widths:
                while len(record) > widths[0] and not record[-1].strip():
                    record.pop()
            widths.append(len(record))
    except csv.Error:
        return widths, not whole and len(widths) > 1  # a head may end inside quotes
    return (widths if whole or len(widths) < 2 else widths[:-1]), True
