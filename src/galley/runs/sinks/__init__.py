"""More places for the metrics of a run. A sink that fails is said once and dropped; the training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from galley.base import Registry


class Sink(Protocol):
    """One place. A file here defines `SINK = TheClass`; making it opens the place.

    Args of the class:
        folder: the run folder.
        first_step: steps done before this training; later steps that a killed one wrote are void.
    """

    def __init__(self, folder: Path, first_step: int) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write numbers by name."""

    def close(self) -> None:
        """Flush and release."""


SINKS: Registry[type[Sink]] = Registry("galley.runs.sinks", attribute="SINK", kind="sink")


class Sinks:
    """All sinks of a run.

    Args:
        names: entries of the registry.
        folder: the run folder.
        first_step: steps done before this training.
        note: called with an event kind and a message when a sink fails.

    Raises:
        GalleyError: `name-unknown`.
    """

    def __init__(
        self, names: Iterable[str], folder: Path, *, first_step: int, note: Callable[[str, str], None]
    ) -> None:
        self._note = note
        self._open: dict[str, Sink] = {}
        for name, kind in [(name, SINKS.get(name)) for name in names]:
            try:
                self._open[name] = kind(folder, first_step)
            except Exception as error:
                self._drop(name, error)

    def log(self, step: int, metrics: Mapping[str, object]) -> None:
        """Write the numbers among the metrics to every sink that still works."""
        numbers = {
            name: float(value)
            for name, value in metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "step"
        }
        for name, sink in list(self._open.items()):
            try:
                sink.log(step, numbers)
            except Exception as error:
                self._drop(name, error)

    def close(self) -> None:
        """Close every sink that still works."""
        for name, sink in list(self._open.items()):
            try:
                sink.close()
            except Exception as error:
                self._drop(name, error)
        self._open.clear()

    def _drop(self, name: str, error: Exception) -> None:
        self._open.pop(name, None)
        self._note("sink-dropped", f"{name} gets no more metrics: {type(error).__name__}: {error}")
