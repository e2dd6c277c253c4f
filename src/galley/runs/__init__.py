"""Run folders: everything about a training, on the disk, readable without Galley."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from galley.runs.atomic import disk_full_is_an_error as disk_full_is_an_error
    from galley.runs.atomic import is_disk_full as is_disk_full
    from galley.runs.atomic import write_bytes as write_bytes
    from galley.runs.atomic import write_json as write_json
    from galley.runs.checkpoints import Checkpoint as Checkpoint
    from galley.runs.checkpoints import Checkpoints as Checkpoints
    from galley.runs.event_log import EventLog as EventLog
    from galley.runs.folder import RunFolder as RunFolder
    from galley.runs.folder import Status as Status
    from galley.runs.folder import find_run as find_run
    from galley.runs.folder import free_name as free_name
    from galley.runs.folder import list_runs as list_runs
    from galley.runs.journal import Journal as Journal
    from galley.runs.plot import loss_plot as loss_plot
    from galley.runs.sinks import SINKS as SINKS
    from galley.runs.sinks import Sink as Sink
    from galley.runs.sinks import Sinks as Sinks
    from galley.runs.stream import JsonLines as JsonLines
    from galley.runs.stream import read_lines as read_lines

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "atomic": ["disk_full_is_an_error", "is_disk_full", "write_bytes", "write_json"],
        "checkpoints": ["Checkpoint", "Checkpoints"],
        "event_log": ["EventLog"],
        "folder": ["RunFolder", "Status", "find_run", "free_name", "list_runs"],
        "journal": ["Journal"],
        "plot": ["loss_plot"],
        "sinks": ["SINKS", "Sink", "Sinks"],
        "stream": ["JsonLines", "read_lines"],
    },
)
