"""The process that plays some of the copies. Started by `processes.py` as `python -m galley.data.environments.worker`.

It is started this way, rather than by `multiprocessing`, so that the user's script is not run a second time. Commands
are one byte, answers are one byte; arrays stand in shared memory. When the parent is gone, however it went, the end of
the lifeline is closed and this process ends at once.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

from galley.base import GalleyError
from galley.data.environments.base import EnvironmentSettings, Step
from galley.data.environments.serial import Serial
from galley.data.environments.shared import Shared, Sizes
from galley.data.environments.single import make_single

STEP, RESET, STATE, LOAD, QUIT = b"s", b"r", b"g", b"l", b"q"
DONE, FAILED = b"k", b"e"


class Start(NamedTuple):
    """What a worker is told first.

    Args:
        settings: of the environments; `num_envs` is that of this worker.
        first: number of its first copy.
        worker: its own number.
        path: of Python's imports, as the parent has it.
    """

    settings: EnvironmentSettings
    first: int
    worker: int
    path: list[str]


class Worker:
    """Answers commands until it is told to stop.

    Args:
        commands, answers: pipes.
        memory: descriptor of the shared file.
    """

    def __init__(self, commands: BinaryIO, answers: BinaryIO, memory: int) -> None:
        self._commands, self._answers = commands, answers
        start: Start = receive(commands)
        sys.path[:] = start.path
        settings = start.settings
        self._rows = slice(start.first, start.first + settings.num_envs)
        make = partial(make_single, settings)
        self._played = Serial(make, settings.num_envs, observe=settings.observe, first=start.first)
        self._reply((self._played.observations, self._played.actions, self._played.masked))
        sizes: Sizes = receive(commands)
        self._shared: Shared = sizes.map(memory)
        self._played.watch = self._shared.acting[start.worker : start.worker + 1]

    def serve(self) -> None:
        """Do as told until told to stop or the parent is gone."""
        while (command := self._commands.read(1)) not in (b"", QUIT):
            if command == STEP:
                self._written(self._played.step(self._shared.actions[self._rows]))
            elif command == RESET:
                self._shared.observations[self._rows] = self._played.reset(receive(self._commands))
            elif command == STATE:
                self._reply(self._played.arrays())
                continue
            elif command == LOAD:
                self._shared.observations[self._rows] = self._played.load_state(receive(self._commands))
            self._write_masks()
            self._answers.write(DONE)
        self._played.close()

    def _reply(self, value: Any) -> None:
        self._answers.write(DONE)
        send(self._answers, value)

    def _written(self, step: Step) -> None:
        shared, rows = self._shared, self._rows
        shared.observations[rows] = step.observations
        shared.rewards[rows] = step.rewards
        shared.terminated[rows] = step.terminated
        shared.truncated[rows] = step.truncated
        shared.reported[rows] = False
        if step.finals is not None:
            shared.finals[rows] = step.finals
        for episode in step.episodes:
            row = episode.environment
            shared.reported[row], shared.returns[row], shared.lengths[row] = True, episode.ret, episode.length

    def _write_masks(self) -> None:
        masks = self._played.action_masks()
        if masks is not None:
            self._shared.masks[self._rows] = masks


def send(pipe: BinaryIO, value: Any) -> None:
    """Its length, then the value."""
    packed = pickle.dumps(value)
    left = memoryview(len(packed).to_bytes(8, "little") + packed)
    while left:
        left = left[pipe.write(left) :]


def receive(pipe: BinaryIO) -> Any:
    """What `send` sent. Both ends are processes of one user and one run."""
    length = read_exactly(pipe, 8)
    return pickle.loads(read_exactly(pipe, int.from_bytes(length, "little")))


def read_exactly(pipe: BinaryIO, number: int) -> bytes:
    """That many bytes.

    Raises:
        EOFError: when the other end is closed before.
    """
    parts = bytearray()
    while len(parts) < number:
        part = pipe.read(number - len(parts))
        if not part:
            raise EOFError("the other end of the pipe is closed")
        parts += part
    return bytes(parts)


def _die_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns only when the parent has gone: nobody writes
    os._exit(1)


def main() -> None:
    """Serve; what goes wrong is told to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which saves first
    incoming, outgoing, memory, lifeline = map(int, sys.argv[1:5])
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    commands = cast("BinaryIO", open(incoming, "rb", buffering=0))
    answers = cast("BinaryIO", open(outgoing, "wb", buffering=0))
    try:
        Worker(commands, answers, memory).serve()
    except (EOFError, BrokenPipeError):
        return
    except GalleyError as error:
        answers.write(FAILED)
        send(answers, (error.code, error.message, error.hint))
    except Exception as error:
        answers.write(FAILED)
        send(answers, ("environment-failed", f"{type(error).__name__}: {error}", ""))


if __name__ == "__main__":
    main()
