"""Metrics and events: append-only lines that survive a kill."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.runs.stream import JsonLines, newest, read_lines

pytestmark = pytest.mark.unit

values = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.booleans(), st.none())
records = st.dictionaries(st.text(max_size=8), values, max_size=5)


@given(st.lists(records, max_size=10))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, object]]) -> None:
    path = tmp_path_factory.mktemp("stream") / "metrics.jsonl"
    with JsonLines(path) as stream:
        for line in lines:
            stream.append(line)
    assert list(read_lines(path)) == lines
    assert newest(path) == {key: value for line in lines[-100:] for key, value in line.items()}


@given(st.integers(0, 10**6))
def test_a_file_cut_anywhere_reads_as_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("stream") / "metrics.jsonl"
    with JsonLines(path) as stream:
        for step in range(20):
            stream.append({"step": step, "text": "损失\n" * (step % 3)})
    content = path.read_bytes()
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    whole = content.count(b"\n")
    assert [r["step"] for r in read_lines(path)] == list(range(whole))
    assert newest(path).get("step", -1) == whole - 1
    with JsonLines(path) as stream:
        stream.append({"step": whole})
    assert [r["step"] for r in read_lines(path)] == list(range(whole + 1))


def test_a_torn_line_longer_than_the_tail_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1}\n' + b'{"text": "' + b"x" * 50_000)
    with JsonLines(path):
        assert path.read_bytes() == b'{"step": 1}\n'


@pytest.mark.parametrize("step", [0, 3, 4, 99])
def test_truncate_after_drops_later_steps_only(tmp_path: Path, step: int) -> None:
    path = tmp_path / "m.jsonl"
    with JsonLines(path) as stream:
        for number in range(1, 7):
            stream.append({"step": number, "loss": 1.0})
            if number % 2 == 0:
                stream.append({"step": number, "held_out_loss": 1.0})
        before = list(read_lines(path))
        dropped = stream.truncate_after(step)
        stream.append({"step": step + 1})
    kept = [r for r in before if r["step"] <= step]
    assert list(read_lines(path)) == [*kept, {"step": step + 1}]
    assert dropped == len(before) - len(kept)


def test_numbers_that_are_not_finite_stay_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with JsonLines(path) as stream:
        stream.append({"loss": math.nan, "parts": [math.inf, 1.5], "deep": {"x": -math.inf}})

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "loss": None,
        "parts": [None, 1.5],
        "deep": {"x": None},
    }


def test_a_reader_sees_a_line_at_once(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "m.jsonl") as stream:
        stream.append({"step": 1})
        assert list(read_lines(tmp_path / "m.jsonl")) == [{"step": 1}]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n???\n{"step": 3}\n')
    with pytest.raises(GalleyError, match=r"m\.jsonl:2") as caught:
        list(read_lines(path))
    assert caught.value.code == "run-damaged"


class _FullAfter:
    """A file that takes some bytes of a line and then has no space."""

    def __init__(self, file: object, room: int) -> None:
        self._file = file
        self._room = room

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        if self._room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self._room]
        self._room -= len(taken)
        return int(self._file.write(taken))  # type: ignore[attr-defined]


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    stream = JsonLines(path)
    stream.append({"step": 1})
    stream._file = _FullAfter(stream._file, room=5)  # type: ignore[assignment]
    with pytest.raises(GalleyError) as caught:
        stream.append({"step": 2})
    assert caught.value.code == "disk-full"
    assert path.read_text() == '{"step": 1}\n'
