"""Files that are either wholly there or not at all, whatever kills the process or fills the disk."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from galley.base import GalleyError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Libraries that write through other languages keep only the text of the system's error.
_NO_SPACE_TEXTS = (
    "No space left",
    "os error 28",
    "Disk quota exceeded",
    "os error 122",
    "File too large",
    "os error 27",
)


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception of any library says that nothing more can be written."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return True
    return any(text in str(error) for text in _NO_SPACE_TEXTS)


@contextmanager
def disk_full_is_an_error(path: Path) -> Iterator[None]:
    """Turn a full disk into one clear error.

    Raises:
        GalleyError: `disk-full`, naming the path.
    """
    try:
        yield
    except GalleyError:
        raise
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise GalleyError(
            "disk-full",
            f"there is no space left to write {path}",
            hint="everything saved before is intact; free some space and run the same command again to continue",
        ) from error


def fsync_file(path: Path) -> None:
    """Wait until the file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Wait until the folder's names are on the disk; a no-op where folders cannot be opened (Windows)."""
    if os.name == "posix":
        fsync_file(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write aside, flush to the disk and rename, so that readers see the old file or the new one.

    Raises:
        GalleyError: `disk-full`; the old file is then still there.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with disk_full_is_an_error(path):
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        fsync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically.

    Raises:
        GalleyError: `disk-full`.
    """
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        GalleyError: `run-damaged` when the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise GalleyError(
            "run-damaged", f"{path} cannot be read: {error}", hint="restore the file or the run"
        ) from error


def replace_link(link: Path, target: str) -> None:
    """Point a relative symbolic link at `target` in one atomic step."""
    aside = link.with_name(f".{link.name}.{os.getpid()}.partial")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)
    fsync_folder(link.parent)
