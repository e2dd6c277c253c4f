"""Run folders: everything about a training, on the disk, readable without Galley."""

from galley.runs.atomic import disk_full_is_an_error, is_disk_full, write_bytes, write_json
from galley.runs.checkpoints import Checkpoint, Checkpoints
from galley.runs.event_log import EventLog
from galley.runs.folder import RunFolder, Status, find_run, free_name, list_runs
from galley.runs.plot import loss_plot
from galley.runs.sinks import SINKS, Sink, Sinks
from galley.runs.stream import JsonLines, read_lines

__all__ = [
    "SINKS",
    "Checkpoint",
    "Checkpoints",
    "EventLog",
    "JsonLines",
    "RunFolder",
    "Sink",
    "Sinks",
    "Status",
    "disk_full_is_an_error",
    "find_run",
    "free_name",
    "is_disk_full",
    "list_runs",
    "loss_plot",
    "read_lines",
    "write_bytes",
    "write_json",
]
