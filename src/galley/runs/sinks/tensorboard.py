"""TensorBoard: scalars under RUN/tensorboard/, without importing torch or TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path


class TensorBoard:
    """Event files that `tensorboard --logdir runs` shows.

    Args:
        folder: the run folder.
        first_step: steps done before; later ones that a killed training wrote are purged by TensorBoard.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder / "tensorboard"), flush_secs=5)
        if first_step > 0:
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=first_step + 1, session_log=start))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write numbers by name."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=number) for name, number in metrics.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Flush and release."""
        self._writer.close()


SINK = TensorBoard
