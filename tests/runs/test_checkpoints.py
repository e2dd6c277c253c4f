"""CONFORMANCE 30: checkpoints are complete or absent, pins hold, and nothing that was saved is ever lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from galley.base import GalleyError
from galley.runs import Checkpoint, Checkpoints
from runs import killed_saver

pytestmark = pytest.mark.unit

Notes = list[tuple[str, str]]


def put(text: str, folder: Path) -> None:
    (folder / "state.json").write_text(text)
    (folder / "deeper").mkdir()
    (folder / "deeper" / "more.bin").write_bytes(text.encode() * 100)


def save(checkpoints: Checkpoints, step: int, *, keep: int = 2, best: bool = False) -> Checkpoint:
    return checkpoints.save(
        step, partial(put, f"state {step}"), keep=keep, best=best, facts={"held_out_loss": step / 10}
    )


def names(checkpoints: Checkpoints) -> set[str]:
    return {path.name for path in checkpoints.folder.iterdir()}


def recover(checkpoints: Checkpoints) -> tuple[Checkpoint | None, Notes]:
    notes: Notes = []
    found = checkpoints.recover(lambda kind, message: notes.append((kind, message)))
    return found, notes


def test_recent_ones_and_the_best_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in range(10, 60, 10):
        save(checkpoints, step, best=step == 20)
    assert names(checkpoints) == {"step-000020", "step-000040", "step-000050", "last", "best"}
    assert (checkpoints.folder / "last").readlink() == Path("step-000050")
    assert (checkpoints.folder / "best").readlink() == Path("step-000020")
    best = checkpoints.best()
    assert best is not None
    assert (best.step, best.facts) == (20, {"held_out_loss": 2.0})
    assert (best.path / "state.json").read_text() == "state 20"
    assert [c.step for c in checkpoints.all()] == [20, 40, 50]
    assert checkpoints.at(40).step == 40


def test_an_empty_run_has_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "missing")
    assert (checkpoints.last(), checkpoints.best(), checkpoints.all()) == (None, None, [])
    assert recover(checkpoints) == (None, [])
    with pytest.raises(GalleyError) as caught:
        checkpoints.at(1)
    assert caught.value.code == "checkpoint-missing"


def test_without_a_best_the_newest_is_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    best = checkpoints.best()
    assert best is not None
    assert best.step == 1


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 5)
    checkpoints.save(5, partial(put, "again"), keep=1)
    last = checkpoints.last()
    assert last is not None
    assert (last.path / "state.json").read_text() == "again"
    assert names(checkpoints) == {"step-000005", "last"}


def test_a_failing_writer_leaves_everything_as_it_was(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, best=True)
    before = names(checkpoints)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(2, fail, keep=1, best=True)
    assert names(checkpoints) == before
    last = checkpoints.last()
    assert last is not None
    assert last.step == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_clear_error(tmp_path: Path, error: Exception) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise error

    with pytest.raises(GalleyError) as caught:
        checkpoints.save(2, fail, keep=1)
    assert caught.value.code == "disk-full"
    assert names(checkpoints) == {"step-000001", "last"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.name != "posix" or shutil.which("mount") is None or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk_loses_nothing(small_disk: Path) -> None:
    import torch

    from galley import checkpoint

    checkpoints = Checkpoints(small_disk / "checkpoints")
    small, large = {"w": torch.arange(100_000)}, {"w": torch.zeros(60_000, dtype=torch.int64)}
    checkpoints.save(1, partial(checkpoint.save, state=small), keep=1, best=True)
    for _ in range(3):
        with pytest.raises(GalleyError) as caught:
            checkpoints.save(2, partial(checkpoint.save, state=large), keep=1, best=True)
        assert caught.value.code == "disk-full"
        assert "free some space" in caught.value.hint
        assert names(checkpoints) == {"step-000001", "last", "best"}
    found, notes = recover(checkpoints)
    assert found is not None
    assert notes == []
    assert torch.equal(checkpoint.load(found.path)["w"], small["w"])


def test_damage_falls_back_to_the_one_before_and_says_so(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        save(checkpoints, step, keep=3, best=step == 3)
    data = tmp_path / "step-000003" / "deeper" / "more.bin"
    content = bytearray(data.read_bytes())
    content[7] ^= 1  # one bit, same size
    data.write_bytes(content)
    (tmp_path / "step-000002" / "state.json").unlink()
    found, notes = recover(checkpoints)
    assert found is not None
    assert found.step == 1
    assert [kind for kind, _ in notes] == ["checkpoint-damaged", "checkpoint-damaged"]
    assert "more.bin has changed" in notes[0][1]
    assert (tmp_path / "last").readlink() == Path("step-000001")
    assert not (tmp_path / "best").is_symlink()
    assert recover(checkpoints) == (found, [])
    assert [c.step for c in checkpoints.all()] == [1]


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"step": 1}', '{"step": 1, "files": 3, "facts": {}}'])
def test_a_broken_marker_is_an_incomplete_checkpoint(tmp_path: Path, marker: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    (tmp_path / "step-000001" / "complete.json").write_text(marker)
    assert checkpoints.last() is None
    found, notes = recover(checkpoints)
    assert found is None
    assert [kind for kind, _ in notes] == ["checkpoint-damaged"]


def test_links_to_elsewhere_are_not_followed(tmp_path: Path) -> None:
    elsewhere = Checkpoints(tmp_path / "elsewhere")
    save(elsewhere, 9)
    checkpoints = Checkpoints(tmp_path / "own")
    save(checkpoints, 1)
    (checkpoints.folder / "step-000099").symlink_to(tmp_path / "elsewhere" / "step-000009")
    (checkpoints.folder / "best").symlink_to("../../elsewhere/step-000009")
    best, last = checkpoints.best(), checkpoints.last()
    assert best == last
    assert best is not None
    assert best.path == checkpoints.folder / "step-000001"


def test_killed_while_saving_the_newest_complete_one_loads(tmp_path: Path) -> None:
    """Kill a saver at random moments, many times over; each time everything that it reported must still be there."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    rng = random.Random(7)
    reported = 0
    cleaned = 0
    for _ in range(12):
        command = [sys.executable, killed_saver.__file__, str(checkpoints.folder), str(reported + 1), "2"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()  # the imports are done, and one is saved
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
        process.wait()
        told = [int(line) for line in rest[:-1]]
        reported = max([reported + 1, *told])
        found, notes = recover(checkpoints)
        assert found is not None
        assert found.step >= reported
        assert all(kind != "checkpoint-damaged" for kind, _ in notes)
        cleaned += len(notes)
        reported = found.step
        for checkpoint in checkpoints.all():
            assert (checkpoint.path / "state.safetensors").read_bytes() == killed_saver.content(checkpoint.step, 0)
            assert (checkpoint.path / "state.json").read_bytes() == killed_saver.content(checkpoint.step, 1)
        assert (checkpoints.folder / "last").resolve() == found.path.resolve()
        assert not list(checkpoints.folder.glob(".*"))
        best = (checkpoints.folder / "best").resolve()
        assert not (checkpoints.folder / "best").is_symlink() or best.is_dir()
    assert cleaned > 0, "no kill hit a save: the test tests nothing"


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 4)
    (tmp_path / "step-000004").rename(tmp_path / ".step-000004.old.partial")
    found, notes = recover(checkpoints)
    assert found is not None
    assert (found.path / "state.json").read_text() == "state 4"
    assert [kind for kind, _ in notes] == ["checkpoint-recovered"]
