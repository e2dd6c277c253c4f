"""Shows a job's progress: one live line on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from galley.base.finite import finite
from galley.base.observer import Fact, Observer, SilentObserver
from galley.base.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES = 5.0
_FEW = 3
"""Units whose pace says nothing yet: the first ones are slower."""
SHOWN = (
    *("loss", "held_out_loss", "accuracy", "return", "evaluation_return"),
    *("tokens_per_second", "rows_per_second", "steps_per_second", "memory_bytes"),
)
"""Facts worth a place in a progress line, in this order; JSON lines carry all of them."""


def console(stream: TextIO, *, as_json: bool = False, quiet: bool = False) -> Observer:
    """The observer that fits where the progress goes.

    Args:
        stream: usually stderr, for stdout is for data.
        as_json: one JSON object a line.
        quiet: show nothing.
    """
    if quiet:
        return SilentObserver()
    if as_json:
        return JsonConsole(stream)
    return LiveConsole(stream) if stream.isatty() else PlainConsole(stream)


def format_fact(name: str, value: Fact) -> str:
    """`loss 2.134`, `1.20k tokens/s`, `1.1 GiB`: the unit is read from the end of the name."""
    if isinstance(value, str):
        return f"{_words(name)} {value}"
    if name.endswith("_per_second"):
        return f"{format_count(value)} {_words(name.removesuffix('_per_second'))}/s"
    if name.endswith("_bytes"):
        return f"{format_bytes(value)} {_words(name.removesuffix('_bytes'))}"
    if name.endswith("_seconds"):
        return f"{_words(name.removesuffix('_seconds'))} {format_duration(value)}"
    return f"{_words(name)} {value:.4g}" if isinstance(value, float) else f"{_words(name)} {value:,}"


def _words(name: str) -> str:
    return name.replace("held_out", "held-out").replace("_", " ")


class _Count:
    """Where a phase stands. A resumed phase does not count earlier work as speed."""

    def __init__(self, name: str, total: int | None, done: int, now: float, seconds: float | None = None) -> None:
        self.name, self.total, self.before, self.done, self.started = name, total, done, done, now
        self.ends = None if seconds is None else now + seconds
        self.facts: dict[str, Fact] = {}
        self._measured: dict[str, int] = {}

    def advance(self, count: int, facts: Mapping[str, Fact]) -> None:
        self.done += count
        self.facts |= facts
        self._measured |= dict.fromkeys(facts, self.done)

    def line(self) -> str:
        """The newest facts; what is measured only now and then says when it was."""
        shown = []
        for name in SHOWN:
            if name in self.facts:
                then = self._measured[name]
                when = f" at {then:,}" if name.startswith(("held_out", "evaluation")) and then < self.done else ""
                shown.append(format_fact(name, self.facts[name]) + when)
        return ", ".join(shown)

    def seconds_left(self, now: float) -> float | None:
        new = self.done - self.before
        if self.total is None or new < max(1, min(_FEW, self.total - self.before)):
            return None
        left = (now - self.started) / new * (self.total - self.done)
        return max(0.0, left if self.ends is None else min(left, self.ends - now))

    def progress(self) -> str:
        if self.total is None:
            return f"{self.done:,}"
        return f"{self.done:,}/{self.total:,}" + (f" ({100 * self.done // self.total} %)" if self.total else "")


class PlainConsole:
    """A line when a phase begins and ends, and every few seconds between: for log files and pipes.

    Args:
        stream: where the lines go.
        seconds: between two lines.
        clock: seconds, never running backwards.
    """

    def __init__(
        self, stream: TextIO, *, seconds: float = SECONDS_BETWEEN_LINES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._seconds, self._clock = stream, seconds, clock
        self._count: _Count | None = None
        self._shown = 0.0

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """A line says what begins."""
        self.close()
        self._count = _Count(name, total, done, self._clock(), seconds)
        self._shown = self._clock()
        of = f", {total - done:,} to do" if total is not None and total > done else ""
        self._write(f"{name}{of} ...")

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """A line, when the last one is old enough."""
        if self._count is None:
            return
        self._count.advance(count, facts)
        now = self._clock()
        if now - self._shown < self._seconds:
            return
        self._shown = now
        left = self._count.seconds_left(now)
        parts = [self._count.line(), f"{format_duration(left)} left" if left is not None else ""]
        self._write(f"{self._count.name} {self._count.progress()}: {', '.join(part for part in parts if part)}")

    def note(self, kind: str, message: str) -> None:
        """A line of its own."""
        self._write(f"{kind}: {message}")

    def close(self) -> None:
        """A line says how the phase ended."""
        if self._count is None:
            return
        count, self._count = self._count, None
        facts = count.line()
        took = f"{count.name}: {format_duration(self._clock() - count.started)}"
        self._write(f"{took}, {facts}" if facts else took)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class JsonConsole:
    """One JSON object a line for everything that happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._phase: str | None = None
        self._done = 0

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """`{"event": "phase", ...}`."""
        self.close()
        self._phase, self._done = name, done
        self._write(event="phase", phase=name, total=total, done=done, seconds=seconds)

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """`{"event": "advance", ...}` with all facts."""
        self._done += count
        self._write(event="advance", phase=self._phase, done=self._done, facts=facts)

    def note(self, kind: str, message: str) -> None:
        """`{"event": "note", ...}`."""
        self._write(event="note", kind=kind, message=message)

    def close(self) -> None:
        """`{"event": "finished", ...}`."""
        if self._phase is not None:
            self._write(event="finished", phase=self._phase, done=self._done)
        self._phase = None

    def _write(self, **record: object) -> None:
        self._stream.write(json.dumps(finite({"time": round(time.time(), 3), **record}), ensure_ascii=False) + "\n")
        self._stream.flush()


class LiveConsole:
    """A live line with bar, facts and remaining time; each finished phase leaves one line behind."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._count = _Count("", None, 0, 0.0)

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """A new live line."""
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.close()
        self._count = _Count(name, total, done, time.monotonic(), seconds)
        bar = BarColumn(bar_width=24) if total else SpinnerColumn()
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            bar,
            TextColumn("{task.fields[line]}", markup=False),
            console=self._console,
            transient=True,
            refresh_per_second=5,
        )
        self._task = self._progress.add_task(name, total=total, completed=done, line="")
        self._progress.start()

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """The live line moves."""
        if self._progress is None or self._task is None:
            return
        self._count.advance(count, facts)
        left = self._count.seconds_left(time.monotonic())
        parts = [
            self._count.progress(),
            self._count.line(),
            f"{format_duration(left)} left" if left is not None else "",
        ]
        self._progress.update(self._task, advance=count, line=" · ".join(part for part in parts if part))

    def note(self, kind: str, message: str) -> None:
        """A line above the live one."""
        self._console.print(f"{kind}: {message}", style="yellow", markup=False)

    def close(self) -> None:
        """The live line becomes a short one that stays."""
        if self._progress is None:
            return
        self._progress.stop()
        self._progress = None
        took = format_duration(time.monotonic() - self._count.started)
        facts = self._count.line()
        self._console.print(f"{self._count.name}: {took}{', ' if facts else ''}{facts}", markup=False, style="dim")
