"""How long work tells what it is doing, without knowing who listens: a terminal, a log, JSON lines or nobody."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Fact: TypeAlias = int | float | str
"""A value that a listener may show; keys carry the unit, e.g. `tokens_per_second`, `memory_bytes`."""


class Observer(Protocol):
    """Listens to a job. Phases follow each other and never nest; opening one closes the one before.

    Example:
        >>> observer = SilentObserver()
        >>> observer.phase("train", total=20)
        >>> observer.advance(1, loss=2.1, tokens_per_second=1100.0)
        >>> observer.note("truncated", "3 of 320 rows were cut at 512 tokens")
        >>> observer.close()
    """

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """A new phase begins.

        Args:
            name: what is done, in a word or two, e.g. `read data`, `train`, `judge`.
            total: units of the phase (steps, rows, bytes); None when unknown.
            done: units that a resumed run had already done.
            seconds: time limit of the phase, from now; None when there is none.
        """

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """`count` more units are done; facts are the newest values worth showing."""

    def note(self, kind: str, message: str) -> None:
        """Something the user should know, said once: `kind` is the event's, e.g. `truncated`, `fallback`."""

    def close(self) -> None:
        """The last phase is over (also called after an error)."""


class SilentObserver:
    """Listens to nothing: for the Python API and for tests."""

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """Ignored."""

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """Ignored."""

    def note(self, kind: str, message: str) -> None:
        """Ignored."""

    def close(self) -> None:
        """Nothing to do."""
