"""Notes of a job, said to whoever watches and kept in the run's event log, also those from before there is a run."""

from __future__ import annotations

from galley.base.observer import Fact, Observer
from galley.runs.folder import RunFolder


class EventLog:
    """An observer that passes everything on and writes each note to events.jsonl.

    Notes that come before `attach` are kept and written then; a resumed run does not write again what it already has.

    Args:
        observer: whoever watches.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._folder: RunFolder | None = None
        self._waiting: list[tuple[str, str]] = []

    def attach(self, folder: RunFolder) -> None:
        """Write to this run from now on. The caller holds its lock."""
        known = {(event["kind"], event["message"]) for event in folder.events()}
        for kind, message in dict.fromkeys(self._waiting):
            if (kind, message) not in known:
                folder.event(kind, message)
        self._waiting.clear()
        self._folder = folder

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        """A new phase begins."""
        self._observer.phase(name, total, done=done, seconds=seconds)

    def advance(self, count: int = 1, **facts: Fact) -> None:
        """`count` more units are done."""
        self._observer.advance(count, **facts)

    def note(self, kind: str, message: str) -> None:
        """Something the user should know: said, and kept."""
        if self._folder is None:
            self._waiting.append((kind, message))
        else:
            self._folder.event(kind, message)
        self._observer.note(kind, message)

    def close(self) -> None:
        """The last phase is over."""
        self._observer.close()
