"""Plain text: a `.txt` or `.md` file is a document, and so is each record's `text`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from galley.data.columns import choose_columns
from galley.data.containers.csv import encoding_error
from galley.data.examples import Document
from galley.data.sniff import encoding_of, open_text
from galley.data.source import Request, Row, Source, cell_text, not_this_format, note_unused, typed_option
from galley.data.sources.files import TEXT_SUFFIXES

FEW_FILES = 10
"""Fewer files than this are read in sections, so that some can be held out."""
SECTION_CHARACTERS = 8_000
"""A section ends at the first empty line after this many characters, about two thousand tokens."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


class Text:
    """Documents, learned from their first to their last token."""

    name = "text"
    tasks = ("complete",)
    options = ("encoding", "document")

    def detect(self, source: Source, task: str) -> float:
        """Certain for text files; likely for records whose only known column is `text`."""
        if source.suffix in TEXT_SUFFIXES:
            return 1.0
        return 0.7 if task == "complete" and source.records is not None and "text" in source.columns else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One document a file (or a section of it, when the files are few), or one a record."""
        if source.records is not None:
            column = choose_columns(source.columns, request.columns, task="complete", source=source.name).get("text")
            if column is None:
                raise not_this_format(source.name, "a table with a column of texts")
            request.used_columns["text"] = column
            note_unused(source, request, (column,))
            for record in source.table():
                yield Row(record.number, Document(cell_text(source.name, record, column)))
            return
        unit = typed_option(request.options, "document", str, None)
        text = _whole(source, request)
        if unit == "file" or (
            unit is None and (request.num_sources >= FEW_FILES or len(text) < 2 * SECTION_CHARACTERS)
        ):
            yield Row(1, Document(text))
            return
        least = 1 if unit == "paragraph" else SECTION_CHARACTERS
        pieces = list(cut(text, least))
        request.notes.append(f"{source.name}: one text of {len(text):,} characters, read as {len(pieces)} documents")
        line = 1
        for piece in pieces:
            if unit == "paragraph" and not piece.strip():
                continue
            yield Row(line, Document(piece.strip() if unit == "paragraph" else piece))
            line += piece.count("\n")


def cut(text: str, least: int) -> Iterator[str]:
    """Cut a text at empty lines into pieces of at least that many characters; put together they are the text."""
    start = 0
    for match in _PARAGRAPH.finditer(text):
        if match.end() - start >= least and match.end() < len(text):
            yield text[start : match.end()]
            start = match.end()
    yield text[start:]


def _whole(source: Source, request: Request) -> str:
    if source.path is None or source.suffix not in TEXT_SUFFIXES:
        raise not_this_format(source.name, "a text file")
    encoding = encoding_of(source.path, request.options)
    if encoding not in ("utf-8", "utf-8-sig") and "encoding" not in request.options:
        request.notes.append(f"{source.name}: read as {encoding}")
    try:
        with open_text(source.path, encoding) as file:
            return file.read().replace("\r\n", "\n")
    except (UnicodeError, LookupError) as error:
        raise encoding_error(source.path, encoding, error) from error


FORMAT = Text()
