"""A process that saves checkpoints without pause until it is killed. Arguments: folder, first step, keep."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from galley.runs import Checkpoints

SIZE = 300_000


def content(step: int, number: int) -> bytes:
    """What a file of a step holds, so that a reader can tell whole from torn."""
    return f"{step}:{number};".encode() * (SIZE // 8)


def write(folder: Path, step: int) -> None:
    """Two files, the second in pieces."""
    (folder / "state.safetensors").write_bytes(content(step, 0))
    with open(folder / "state.json", "wb") as file:
        whole = content(step, 1)
        for start in range(0, len(whole), 50_000):
            file.write(whole[start : start + 50_000])
            file.flush()


def main() -> None:
    """Save for ever, every third one as best."""
    folder, first, keep = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    step = first
    while True:
        Checkpoints(folder).save(step, partial(write, step=step), keep=keep, best=step % 3 == 0, facts={"step": step})
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        step += 1


if __name__ == "__main__":
    main()
