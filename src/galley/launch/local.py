"""Several processes of one job on this machine: started together, watched, and ended together."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from galley.base import Exit, GalleyError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.api import RunProcsResult

_LAST_LINES = 8
_OWN_EXITS = {int(code) for code in Exit}


def launch_local(arguments: Sequence[str], processes: int) -> int:
    """Run `galley ARGUMENTS` as that many processes that find each other; give the exit code of the first one.

    The first process has this terminal; what the others say is kept, and its end is shown when one of them fails.

    Args:
        arguments: of the command line, without `galley`.
        processes: how many.

    Raises:
        GalleyError: `process-failed` when a process dies or fails in a way that Galley does not know.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    ranks, port = range(processes), _free_port()
    logs = Path(tempfile.mkdtemp(prefix="galley-logs-"))
    started = start_processes(
        name="galley",
        entrypoint=sys.executable,
        args=dict.fromkeys(ranks, ("-m", "galley", *arguments)),
        envs={rank: environment(rank, processes, port) for rank in ranks},
        logs_specs=DefaultLogsSpecs(
            log_dir=str(logs), redirects={rank: Std.NONE if rank == 0 else Std.ALL for rank in ranks}
        ),
    )
    with _interruptions_go_to_the_children():
        result = started.wait()
    assert result is not None, "waiting has no time limit"
    code = _exit_code(result, logs)
    shutil.rmtree(logs, ignore_errors=True)
    return code


def environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """The variables by which a process finds the others, as torchrun sets them."""
    cores = os.cpu_count() or 1
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores // processes))),
    }


def _exit_code(result: RunProcsResult, logs: Path) -> int:
    """Zero when all ended well; an ending that Galley itself chose, such as an interruption, is passed on."""
    if not result.failures:
        return 0
    # A process that is killed takes the others with it, and their errors may be noticed before its end.
    rank, failure = min(result.failures.items(), key=lambda item: (item[1].exitcode >= 0, item[1].timestamp))
    if failure.exitcode in _OWN_EXITS and rank == 0:
        return int(failure.exitcode)
    how = f"was killed by signal {-failure.exitcode}" if failure.exitcode < 0 else f"ended with {failure.exitcode}"
    said = "\n".join(f"  {line}" for line in _last_lines(logs, rank))
    raise GalleyError(
        "process-failed",
        f"process {rank} {how}; the others were ended" + (f"\n{said}" if said else ""),
        hint="the same command continues from the newest checkpoint",
    )


def _last_lines(logs: Path, rank: int) -> list[str]:
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(logs.rglob(f"{rank}/std*.log"))]
    return [line for text in texts for line in text.splitlines()][-_LAST_LINES:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _interruptions_go_to_the_children() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal; each saves and stops, and this one waits for them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
