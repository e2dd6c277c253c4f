"""Copies in processes of their own, for environments whose steps take long (0.2 ms and more)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from galley.base import GalleyError
from galley.data.environments import worker as protocol
from galley.data.environments.base import EnvironmentSettings, Episode, Step
from galley.data.environments.layout import ActionLayout, ObservationLayout
from galley.data.environments.shared import Shared, Sizes, unnamed_file

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_PATIENCE = 5.0
"""Seconds that a worker has to close its environments before it is killed."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class _Process:
    """One worker and the pipes to it; copies `rows` are its own."""

    process: subprocess.Popen[bytes]
    commands: BinaryIO
    answers: BinaryIO
    rows: range


class Processes:
    """Copies split evenly over worker processes. Results equal those of `Serial`, whatever the number of workers.

    Args:
        settings: `workers` processes at most, one copy each at least.

    Raises:
        GalleyError: those of making the environments; `environment-unsupported` where pipes cannot be inherited.
    """

    def __init__(self, settings: EnvironmentSettings) -> None:
        if os.name != "posix":
            raise GalleyError(
                "environment-unsupported",
                "data.options.vector: processes needs Linux, macOS or another POSIX system",
                hint="data.options.vector: serial",
            )
        self.num_envs = settings.num_envs
        self._workers: list[_Process] = []
        memory = unnamed_file()
        lifeline, self._lifeline = os.pipe()
        self._finalizer = weakref.finalize(self, _close, self._workers, self._lifeline)
        try:
            for number, rows in enumerate(_shares(settings.num_envs, settings.workers)):
                self._workers.append(_started(settings, number, rows, memory, lifeline))
            spaces = self._answers(protocol.receive)
            self.observations: ObservationLayout = spaces[0][0]
            self.actions: ActionLayout = spaces[0][1]
            self._masked: bool = spaces[0][2]
            sizes = Sizes(self.num_envs, len(self._workers), self.observations, self.actions, self._masked)
            os.ftruncate(memory, sizes.num_bytes())
            self._shared: Shared = sizes.map(memory)
            self._tell(lambda part: protocol.send(part.commands, sizes))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(memory)
            os.close(lifeline)

    def reset(self, seed: int) -> Array:
        """First observations of new episodes."""
        self._tell(lambda part: _command(part, protocol.RESET, seed))
        self._answers()
        return self._shared.observations.copy()

    def step(self, actions: Array) -> Step:
        """One action in each copy, at the same time in all processes."""
        shared = self._shared
        shared.actions[...] = actions
        self._tell(lambda part: part.commands.write(protocol.STEP))
        self._answers()
        observations = shared.observations.copy()
        terminated, truncated = shared.terminated.copy(), shared.truncated.copy()
        over = terminated | truncated
        finals: Array | None = None
        episodes: list[Episode] = []
        if over.any():
            finals = np.where(over[:, None], shared.finals, observations)
            rows = np.flatnonzero(shared.reported).tolist()
            episodes = [Episode(float(shared.returns[row]), int(shared.lengths[row]), row) for row in rows]
        return Step(observations, shared.rewards.copy(), terminated, truncated, finals, None, episodes)

    def action_masks(self) -> Array | None:
        """What the environments said when they last acted."""
        return self._shared.masks.copy() if self._masked else None

    def state(self) -> Mapping[str, Any]:
        """The same as that of `Serial`: a run can go on with another number of workers, or none."""
        import torch

        self._tell(lambda part: part.commands.write(protocol.STATE))
        parts = self._answers(protocol.receive)
        joined: dict[str, Any] = {"seed": parts[0]["seed"]}
        for key in parts[0]:
            if key != "seed":
                joined[key] = [value for part in parts for value in part[key]]
        joined["actions"] = [torch.from_numpy(actions) for actions in joined["actions"]]
        return joined

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Play the running games again, in all processes at the same time."""

        def share(rows: range) -> dict[str, Any]:
            own = {key: v if key == "seed" else list(v)[rows.start : rows.stop] for key, v in state.items()}
            return {**own, "actions": [np.asarray(actions) for actions in own["actions"]]}

        self._tell(lambda part: _command(part, protocol.LOAD, share(part.rows)))
        self._answers()
        return self._shared.observations.copy()

    def close(self) -> None:
        """End the processes; safe to call again."""
        self._finalizer()

    def _tell(self, send: Callable[[_Process], object]) -> None:
        for part in self._workers:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which `_answers` finds and names
                send(part)

    def _answers(self, read: Callable[[BinaryIO], Any] | None = None) -> list[Any]:
        """Wait for all workers; the first failure is raised once all have answered."""
        values, failed = [], []
        for number, part in enumerate(self._workers):
            try:
                kind = protocol.read_exactly(part.answers, 1)
                if kind == protocol.FAILED:
                    code, message, hint = protocol.receive(part.answers)
                    failed.append(GalleyError(code, message, hint=hint))
                else:
                    values.append(read(part.answers) if read is not None else None)
            except EOFError:
                failed.append(self._died(number))
        if failed:
            raise failed[0]
        return values

    def _died(self, number: int) -> GalleyError:
        part = self._workers[number]
        with contextlib.suppress(subprocess.TimeoutExpired):
            part.process.wait(_PATIENCE)
        shared = getattr(self, "_shared", None)
        where = f"environment {shared.acting[number]}" if shared is not None else f"environments {list(part.rows)}"
        return GalleyError(
            "environment-failed",
            f"{where}: its process (worker {number}) died: {_cause(part.process.returncode)}",
            hint="the run is saved; look above for what it printed, and for a lack of memory",
        )


def _command(part: _Process, command: bytes, value: Any) -> None:
    part.commands.write(command)
    protocol.send(part.commands, value)


def _shares(num_envs: int, workers: int) -> list[range]:
    """Consecutive copies for each worker, as evenly as possible."""
    number = min(workers, num_envs)
    bounds = [num_envs * i // number for i in range(number + 1)]
    return [range(bounds[i], bounds[i + 1]) for i in range(number)]


def _started(settings: EnvironmentSettings, number: int, rows: range, memory: int, lifeline: int) -> _Process:
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()
    theirs = (commands_out, answers_in, memory, lifeline)
    words = [sys.executable, "-m", "galley.data.environments.worker", *map(str, theirs)]
    path = [str(Path(entry).resolve()) for entry in sys.path]
    surroundings = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path)}
    process = subprocess.Popen(words, pass_fds=theirs, stdin=subprocess.DEVNULL, env=surroundings)
    os.close(commands_out)
    os.close(answers_in)
    commands = cast("BinaryIO", open(commands_in, "wb", buffering=0))
    part = _Process(process, commands, cast("BinaryIO", open(answers_out, "rb", buffering=0)), rows)
    start = protocol.Start(replace(settings, num_envs=len(rows)), rows.start, number, path)
    with contextlib.suppress(BrokenPipeError):
        protocol.send(commands, start)
    return part


def _cause(code: int | None) -> str:
    if code is None:
        return "it no longer answers"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


def _close(workers: list[_Process], lifeline: int) -> None:
    """Ask all to stop, wait for them, kill those that do not."""
    for part in workers:
        with contextlib.suppress(OSError):
            part.commands.write(protocol.QUIT)
        part.commands.close()
    for part in workers:
        try:
            part.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            part.process.kill()
            part.process.wait()
        part.answers.close()
    os.close(lifeline)
