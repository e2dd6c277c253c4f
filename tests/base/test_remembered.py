"""Facts of large files that are kept: never older than the file, never needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from galley.base import remembered as remembering
from galley.base.remembered import remembered
from galley.models import resolve
from models import hub_folders

pytestmark = pytest.mark.unit


class Reader:
    """Reads a file's text, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, path: Path) -> dict[str, Any]:
        self.times += 1
        return {"text": path.read_text(), "numbers": [1, 2.5, None]}


@pytest.fixture
def file(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as old."""
    monkeypatch.setattr(remembering, "YOUNG_SECONDS", -1.0)
    path = tmp_path / "weights.gguf"
    path.write_text("one")
    return path


def test_a_file_is_read_once(file: Path) -> None:
    read = Reader()
    first = remembered(file, "facts", read)
    assert remembered(file, "facts", read) == first == {"text": "one", "numbers": [1, 2.5, None]}
    assert read.times == 1


def test_files_and_kinds_are_told_apart(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / file.name
    other.parent.mkdir()
    other.write_text("two")
    assert remembered(file, "facts", Reader()) != remembered(other, "facts", Reader())
    assert remembered(file, "length", lambda path: len(path.read_text())) == 3


def test_a_change_that_keeps_size_and_time_is_seen(file: Path) -> None:
    remembered(file, "facts", Reader())
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert remembered(file, "facts", Reader())["text"] == "two"


def test_a_file_that_was_just_written_is_not_trusted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "YOUNG_SECONDS", 60.0)
    read = Reader()
    for _ in range(2):
        remembered(file, "facts", read)
    assert read.times == 2


def test_another_version_reads_anew(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Reader()
    remembered(file, "facts", read)
    monkeypatch.setattr(remembering, "VERSION", 99)
    remembered(file, "facts", read)
    assert read.times == 2


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "other bytes", "folder"])
def test_a_damaged_cache_is_ignored(file: Path, cache_folder: Path, damage: str) -> None:
    read = Reader()
    remembered(file, "facts", read)
    (kept,) = (cache_folder / "read").iterdir()
    whole = kept.read_bytes()
    damaged = {"empty": b"", "cut": whole[:-5], "changed": whole.replace(b"one", b"two"), "other bytes": b"\xff\x00"}
    kept.unlink()
    if damage == "folder":
        kept.mkdir()
    else:
        kept.write_bytes(damaged[damage])
    assert remembered(file, "facts", read)["text"] == "one"
    assert read.times == 2


def test_a_cache_that_cannot_be_written_is_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(file))
    assert remembered(file, "facts", Reader())["text"] == "one"


def test_the_remembered_spec_is_the_one_of_the_header(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "YOUNG_SECONDS", -1.0)
    path = str(hub_folders.gguf(tmp_path / "tiny.gguf", hub_folders.model("llama")))
    read = resolve(path)

    def refuse(path: Path) -> None:
        raise AssertionError("the header is read again")

    monkeypatch.setattr("galley.models.gguf_header.read_gguf_header", refuse)
    known = resolve(path)
    assert known == read
    assert known.config == read.config
    assert known.reference == path
