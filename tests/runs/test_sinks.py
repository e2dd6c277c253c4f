"""Every sink keeps what it is given, through a resume too; a broken one never stops a training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from galley.base import GalleyError
from galley.runs import SINKS, RunFolder, Sinks

pytestmark = pytest.mark.unit

TRAIN_TWICE = """
import sys
from pathlib import Path
from galley.runs import Sinks
folder = Path(sys.argv[2])
def train(first, last):
    sinks = Sinks([sys.argv[1]], folder, first_step=first, note=lambda kind, message: sys.exit(message))
    for step in range(first + 1, last + 1):
        sinks.log(step, {"step": step, "loss": 10.0 / step, "name": "text", "best": True})
    sinks.close()
train(0, 6)   # killed after 6
train(4, 8)   # resumed from a checkpoint at 4
"""


def read_tensorboard(folder: Path) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    assert found.Tags()["scalars"] == ["loss"]
    events = [(e.step, e.value) for e in found.Scalars("loss")]
    assert len({step for step, _ in events}) == len(events), "a step stands twice"
    return dict(events)


def read_trackio(folder: Path) -> dict[int, float]:
    import sqlite3

    rows = sqlite3.connect(folder.parent / ".trackio" / "galley.db").execute("select step, metrics from metrics")
    import json

    events = [(step, json.loads(metrics)["loss"]) for step, metrics in rows]
    assert len({step for step, _ in events}) == len(events), "a step stands twice"
    return dict(events)


READERS = {"tensorboard": read_tensorboard, "trackio": read_trackio}


def test_every_sink_has_a_reader_here() -> None:
    assert set(SINKS.names()) == set(READERS)


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_resumed_training_stands_once_in_the_sink(tmp_path: Path, name: str) -> None:
    run = RunFolder.create(tmp_path, "faq", recipe="", plan={}, manifest={})
    command = [sys.executable, "-c", TRAIN_TWICE, name, str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "data only goes to stdout"
    assert READERS[name](run.path) == pytest.approx({step: 10.0 / step for step in range(1, 9)})


class _Broken:
    def __init__(self, folder: Path, first_step: int) -> None:
        self.calls = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls += 1
        raise OSError("the server is gone")

    def close(self) -> None:
        raise AssertionError("a dropped sink is not used again")


def test_a_failing_sink_is_said_once_and_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SINKS, "get", lambda name: _Broken)
    notes: list[tuple[str, str]] = []
    sinks = Sinks(["tensorboard"], tmp_path, first_step=0, note=lambda kind, message: notes.append((kind, message)))
    for step in range(3):
        sinks.log(step, {"loss": 1.0})
    sinks.close()
    assert notes == [("sink-dropped", "tensorboard gets no more metrics: OSError: the server is gone")]


def test_an_unknown_sink_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        Sinks(["tensorbord"], tmp_path, first_step=0, note=print)
    assert caught.value.code == "name-unknown"
    assert "tensorboard" in caught.value.hint
