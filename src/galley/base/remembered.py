"""What was once read from a large file, kept until the file changes, so that a start does not read it again."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from galley.base.cache import cache_folder

T = TypeVar("T")

VERSION = 1
"""Counts up when the same file would be read differently, so that older facts are not used."""
YOUNG_SECONDS = 2.0
"""A file that was written just now may be written again without a newer time of change."""


def remembered(path: Path, kind: str, read: Callable[[Path], T]) -> T:
    """What `read` gives for the file, from the cache while the file is the same.

    The same means its place, size, inode and times of writing and change. Whatever is damaged in the cache is read
    anew, and a cache that cannot be written is left alone.

    Args:
        path: an existing file.
        kind: a word for what is read.
        read: reads it, as a value that JSON holds.
    """
    stamp = _stamp(path, kind)
    place = cache_folder() / "read" / f"{path.stem}-{kind}-{_digest(str(path.resolve()))}.json"
    with contextlib.suppress(OSError, ValueError):
        digest, _, text = place.read_text(encoding="utf-8").partition("\n")
        if digest == _digest(stamp, text):
            known: T = json.loads(text)
            return known
    value = read(path)
    text = json.dumps(value)
    if time.time() - path.stat().st_ctime > YOUNG_SECONDS and _stamp(path, kind) == stamp:
        _keep(place, f"{_digest(stamp, text)}\n{text}")
    return value


def _stamp(path: Path, kind: str) -> str:
    found = path.stat()
    return repr((kind, VERSION, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def _keep(place: Path, text: str) -> None:
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(place)
