"""One training per run folder: a lock that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from galley.base import GalleyError

LOCK_NAME = ".lock"
_HOLDER_NAME = ".lock-holder.json"
# Longer than any `is_locked` probe holds the lock, so that a listing never makes a training fail to start.
_PATIENCE_SECONDS = 0.5


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock.

    Raises:
        GalleyError: `run-locked`, naming the process that holds it and since when.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK_NAME, timeout=_PATIENCE_SECONDS, poll_interval=0.02)
    try:
        lock.acquire()
    except Timeout:
        raise GalleyError(
            "run-locked",
            f"another process is training in {folder}: {holder(folder)}",
            hint="wait for it or stop it, or give this training another `name:`",
        ) from None
    try:
        holder_file = folder / _HOLDER_NAME
        holder_file.write_text(json.dumps({"pid": os.getpid(), "since": time.time()}), encoding="utf-8")
        yield
        holder_file.unlink(missing_ok=True)
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a living process holds the folder's lock."""
    from filelock import FileLock, Timeout

    if not (folder / LOCK_NAME).exists():
        return False
    lock = FileLock(folder / LOCK_NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


def holder(folder: Path) -> str:
    """Who holds the lock, in words."""
    try:
        facts = json.loads((folder / _HOLDER_NAME).read_text(encoding="utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts["since"]))
        return f"process {facts['pid']}, since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has only just started"
