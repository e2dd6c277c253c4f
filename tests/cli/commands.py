"""Run `galley` as a user does, in this process or in its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from galley.cli.main import main

HEAVY = ("torch", "transformers", "peft", "numpy", "rich", "pyarrow", "matplotlib", "datasets", "huggingface_hub")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Galley:
    """Runs command lines in this process, in an empty folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, *words: str) -> Outcome:
        self._capsys.readouterr()
        code = main(words)
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


def in_own_process(*words: str, cwd: Path) -> tuple[Outcome, set[str]]:
    """Run a command line in a new process; also what it imported of what is heavy."""
    code = (
        "import sys; from galley.cli.main import main; code = main(sys.argv[1:]); "
        f"print('imported:', *(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr); sys.exit(code)"
    )
    env = {**os.environ, "COLUMNS": "100"}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    err, _, heavy = done.stderr.rpartition("imported:")
    return Outcome(done.returncode, done.stdout, err), set(heavy.split())
