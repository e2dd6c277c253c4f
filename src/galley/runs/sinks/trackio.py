"""trackio: a local dashboard with the interface of Weights & Biases; nothing leaves the machine by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

_PROJECT = "galley"


class Trackio:
    """A trackio run of the project `galley`, named like the run.

    The store is `.trackio` beside the run folders, or where the environment variable TRACKIO_DIR says;
    `TRACKIO_DIR=runs/.trackio trackio show --project galley` opens it.

    Args:
        folder: the run folder.
        first_step: steps done before; above 0, a trackio run of this name is continued, and nothing written twice.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder.parent.resolve() / ".trackio"))
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        # A resumed training repeats the steps since its checkpoint bit by bit, and trackio cannot take steps back.
        known = SQLiteStorage.get_max_step_for_run(_PROJECT, folder.name) if first_step > 0 else None
        self._known_step = -1 if known is None else int(known)
        with redirect_stdout(sys.stderr):
            self._run = trackio.init(
                project=_PROJECT,
                name=folder.name,
                resume="allow" if first_step > 0 else "never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write numbers by name."""
        if step > self._known_step:
            self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Flush and release."""
        import trackio

        with redirect_stdout(sys.stderr):
            trackio.finish()


SINK = Trackio
