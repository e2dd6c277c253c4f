"""The metrics of a training as it goes: to the run folder, to sinks, and to whoever watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from galley.base.observer import Observer
from galley.runs.folder import RunFolder
from galley.runs.sinks import Sinks
from galley.runs.stream import JsonLines


class Journal:
    """The writer of one training's records. Begin it at the step that the training continues from.

    Args:
        folder: the run folder; the caller holds its lock.
        observer: is told of notes and progress; an `EventLog` keeps the notes.
        sinks: names of more places for the metrics.
        writes: false in all but one of several processes, which only listen.
    """

    def __init__(
        self, folder: RunFolder, observer: Observer, *, sinks: Iterable[str] = (), writes: bool = True
    ) -> None:
        self.folder = folder
        self._writes = writes
        self.observer = observer
        self._sink_names = tuple(sinks)
        self._metrics: JsonLines | None = None
        self._sinks: Sinks | None = None

    def begin(self, step: int) -> None:
        """Cut metrics that a killed training wrote after `step`, for they come again, and open the sinks."""
        if not self._writes:
            return
        self._metrics = self.folder.open_metrics()
        self._metrics.truncate_after(step)
        self._sinks = Sinks(self._sink_names, self.folder.path, first_step=step, note=self.note)

    def log(self, position: Mapping[str, float], facts: Mapping[str, float], *, done: int = 0) -> None:
        """One line of metrics.

        Args:
            position: `step`, `tokens` and `seconds` so far.
            facts: the values to show and keep.
            done: steps to advance the progress by.
        """
        if not self._writes:
            return
        assert self._metrics is not None
        assert self._sinks is not None
        line = {**position, **facts}
        self._metrics.append(line)
        self._sinks.log(int(position["step"]), line)
        self.observer.advance(done, **facts)

    def note(self, kind: str, message: str) -> None:
        """Something worth knowing."""
        self.observer.note(kind, message)

    def close(self) -> None:
        """Flush metrics and sinks."""
        if self._metrics is not None:
            self._metrics.close()
        if self._sinks is not None:
            self._sinks.close()
