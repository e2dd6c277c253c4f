"""An append-only file of JSON objects, one a line, that survives a kill in the middle of a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

from galley.base import GalleyError
from galley.base.finite import finite
from galley.runs.atomic import disk_full_is_an_error

_TAIL = 8192


class JsonLines:
    """A writer that owns the end of the file. Opening it cuts off a line that an earlier kill left torn.

    Args:
        path: the file; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = open(path, "ab+", buffering=0)
        self._file.truncate(_end_of_last_line(self._file))

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line, visible to readers at once. Numbers that are not finite become null.

        Raises:
            GalleyError: `disk-full`; nothing of the line is then left in the file.
        """
        line = json.dumps(finite(record), ensure_ascii=False, separators=(", ", ": "), allow_nan=False).encode() + b"\n"
        with disk_full_is_an_error(self.path):
            start = os.fstat(self._file.fileno()).st_size
            try:
                written = self._file.write(line)
                if written != len(line):  # the disk took a part: the next call says why
                    self._file.write(line[written:])
            except OSError:
                self._file.truncate(start)
                raise

    def truncate_after(self, step: int) -> int:
        """Drop the lines from the first whose `step` is greater, so that a resumed training doubles nothing.

        Returns:
            How many lines were dropped.
        """
        keep = 0
        dropped = 0
        self._file.seek(0)
        for line in self._file.read().splitlines(keepends=True):
            record = _parse(line)
            if dropped or (record is not None and record.get("step", 0) > step):
                dropped += 1
            else:
                keep += len(line)
        if dropped:
            self._file.truncate(keep)
        return dropped

    def close(self) -> None:
        """Flush to the disk and release the file."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of the file; a torn last line is not yet there.

    Raises:
        GalleyError: `run-damaged` when a whole line is no JSON object.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            record = _parse(line)
            if record is None:
                raise GalleyError(
                    "run-damaged", f"{path}:{number}: not a JSON object: {line[:80]!r}", hint="delete that line"
                )
            yield record


def newest(path: Path) -> dict[str, Any]:
    """The newest value of each name in the last lines of the file."""
    found: dict[str, Any] = {}
    for line in _last_lines(path):
        found |= _parse(line) or {}
    return found


def _last_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        return file.read().split(b"\n")[:-1]  # what follows the last newline is torn or empty


def _end_of_last_line(file: IO[bytes]) -> int:
    """Offset behind the last newline."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - _TAIL)
        file.seek(start)
        found = file.read(position - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
