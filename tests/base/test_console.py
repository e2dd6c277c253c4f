from __future__ import annotations

import io
import json

import pytest

from galley.base import Observer, SilentObserver
from galley.base.console import JsonConsole, LiveConsole, PlainConsole, console, format_fact

pytestmark = pytest.mark.unit


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(observer: Observer) -> None:
    """A short job."""
    observer.phase("read data")
    observer.note("truncated", "3 rows were cut at 512 tokens")
    observer.phase("train", total=4, done=1)
    for step in range(3):
        observer.advance(1, loss=2.5 - step, tokens_per_second=1234.0, memory_bytes=3 * 2**30, grad_norm=1.0)
    observer.close()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("loss", 2.13456, "loss 2.135"),
        ("tokens_per_second", 1234.0, "1.23k tokens/s"),
        ("memory_bytes", 1181116006, "1.1 GiB memory"),
        ("held_out_loss", 0.5, "held-out loss 0.5"),
        ("step_seconds", 0.4, "step 0.4 s"),
        ("rows", 12345, "rows 12,345"),
        ("device", "cpu", "device cpu"),
    ],
)
def test_facts_carry_their_units(name: str, value: float | str, text: str) -> None:
    assert format_fact(name, value) == text


def test_plain_lines_come_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    plain = PlainConsole(stream, seconds=5, clock=clock)
    plain.phase("train", total=40, done=10)
    for _ in range(20):
        clock.now += 1
        plain.advance(1, loss=1.5, tokens_per_second=900.0)
    plain.close()
    assert stream.getvalue().splitlines() == [
        "train, 30 to do ...",
        "train 15/40 (37 %): loss 1.5, 900 tokens/s, 25 s left",
        "train 20/40 (50 %): loss 1.5, 900 tokens/s, 20 s left",
        "train 25/40 (62 %): loss 1.5, 900 tokens/s, 15 s left",
        "train 30/40 (75 %): loss 1.5, 900 tokens/s, 10 s left",
        "train: 20 s, loss 1.5, 900 tokens/s",
    ]


def test_what_was_measured_earlier_says_when() -> None:
    stream = io.StringIO()
    plain = PlainConsole(stream, seconds=0)
    plain.phase("train", total=3)
    plain.advance(1, loss=2.0)
    plain.advance(0, held_out_loss=1.5)
    plain.advance(1, loss=1.0)
    lines = stream.getvalue().splitlines()
    assert lines[2].endswith("loss 2, held-out loss 1.5")
    assert lines[3].endswith("loss 1, held-out loss 1.5 at 1")


def test_earlier_work_of_a_resumed_run_is_not_counted_as_speed() -> None:
    stream, clock = io.StringIO(), Clock()
    plain = PlainConsole(stream, seconds=0, clock=clock)
    plain.phase("train", total=1000, done=990)
    clock.now += 6
    plain.advance(3)
    assert stream.getvalue().splitlines()[-1].endswith(": 14 s left")


def test_a_time_limit_ends_the_wait_sooner() -> None:
    stream, clock = io.StringIO(), Clock()
    plain = PlainConsole(stream, seconds=0, clock=clock)
    plain.phase("train", total=1000, seconds=60)
    clock.now += 5
    plain.advance(2)
    assert "left" not in stream.getvalue()  # the first steps say nothing yet about the pace
    clock.now += 5
    plain.advance(1)
    assert stream.getvalue().splitlines()[-1].endswith(": 50 s left")


def test_phases_without_a_total_count() -> None:
    stream = io.StringIO()
    plain = PlainConsole(stream, seconds=0)
    plain.phase("read")
    plain.advance(3)
    plain.phase("train", total=0)
    plain.advance(0)
    plain.close()
    assert "read 3" in stream.getvalue()


def test_json_lines_carry_all_facts() -> None:
    stream = io.StringIO()
    play(JsonConsole(stream))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["phase", "note", "finished", "phase", *["advance"] * 3, "finished"]
    assert lines[-2]["facts"] == {"loss": 0.5, "tokens_per_second": 1234.0, "memory_bytes": 3 * 2**30, "grad_norm": 1.0}
    assert lines[-2]["done"] == 4
    assert lines[1]["kind"] == "truncated"


def test_live_line_leaves_one_line_for_each_phase() -> None:
    stream = Terminal()
    play(LiveConsole(stream))
    text = stream.getvalue()
    assert "truncated: 3 rows were cut at 512 tokens" in text
    assert "4/4 (100 %) · loss 0.5, 1.23k tokens/s, 3 GiB memory" in text
    assert text.rstrip().endswith("loss 0.5, 1.23k tokens/s, 3 GiB memory\x1b[0m")


def test_the_console_fits_where_the_progress_goes() -> None:
    assert isinstance(console(Terminal()), LiveConsole)
    assert isinstance(console(io.StringIO()), PlainConsole)
    assert isinstance(console(Terminal(), as_json=True), JsonConsole)
    assert isinstance(console(Terminal(), quiet=True), SilentObserver)


@pytest.mark.parametrize("as_json", [True, False])
def test_closing_twice_and_advancing_outside_a_phase_are_harmless(as_json: bool) -> None:
    for stream in (io.StringIO(), Terminal()):
        observer = console(stream, as_json=as_json)
        observer.close()
        observer.advance(1)
        observer.phase("x")
        observer.close()
        observer.close()
