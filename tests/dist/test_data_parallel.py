"""Several processes learn what one learns: the same losses and weights, also after a kill and with another number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import jobs
from galley.runs import RunFolder

pytestmark = pytest.mark.dist


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def command(asked: dict[str, Any], root: Path, processes: int) -> list[str]:
    path = root.parent / f"{root.name}.yaml"
    path.write_text(json.dumps(asked), encoding="utf-8")
    words = ["train", str(path), "--runs", str(root), "--quiet", "--processes", str(processes)]
    return [sys.executable, "-m", "galley", *words]


def train(asked: dict[str, Any], root: Path, processes: int) -> RunFolder:
    done = subprocess.run(command(asked, root, processes), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return RunFolder.open(root / asked["name"])


def losses(folder: RunFolder, name: str = "loss") -> list[float]:
    return [line[name] for line in folder.metrics() if name in line]


def assert_same(one: RunFolder, other: RunFolder) -> None:
    assert losses(other) == pytest.approx(losses(one), rel=1e-5)
    assert losses(other, "held_out_loss") == pytest.approx(losses(one, "held_out_loss"), rel=1e-5)
    ours, theirs = jobs.weights(one), jobs.weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(("task", "processes"), [("chat", 3), ("classify", 2)])
def test_several_processes_equal_one(task: str, processes: int, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"override": {"precision": "fp32", "global_batch": 7}}
    if task == "classify":  # dropout draws from each process's own generator
        changes["model"] = f"{tmp_path / 'calm.py'}:Net"
        (tmp_path / "calm.py").write_text(jobs.NET.replace("0.2", "0.0"))
    asked = jobs.recipe(task, tmp_path, **changes)
    assert_same(jobs.run(asked, tmp_path / "one"), train(asked, tmp_path / "several", processes))


def test_more_processes_than_rows_of_a_step(tmp_path: Path) -> None:
    asked = jobs.recipe("chat", tmp_path, override={"precision": "fp32", "global_batch": 1}, budget={"steps": 3})
    assert_same(jobs.run(asked, tmp_path / "one"), train(asked, tmp_path / "two", 2))


def test_a_killed_process_ends_the_job_and_another_number_continues(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"budget": {"steps": 300}, "checkpoint": {"every": 5}, "evaluate": {"every": 1000}}
    (tmp_path / "calm.py").write_text(jobs.NET.replace("0.2", "0.0"))
    asked = jobs.recipe("classify", tmp_path, model=f"{tmp_path / 'calm.py'}:Net", **changes)
    whole = jobs.run(asked, tmp_path / "whole")
    process = subprocess.Popen(command(asked, tmp_path / "broken", 2), stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "broken" / "classify" / "metrics.jsonl"
    while process.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < 8):
        time.sleep(0.02)
    second = [p for p in psutil.Process(process.pid).children() if p.environ().get("RANK") == "1"]
    assert second, "the second process is gone before it was killed"
    os.kill(second[0].pid, signal.SIGKILL)
    started = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - started < 40
    assert process.returncode == 1
    assert "process-failed" in said
    assert "process 1 was killed by signal 9" in said
    assert RunFolder.open(tmp_path / "broken" / "classify").checkpoints.last() is not None
    resumed = train(asked, tmp_path / "broken", 3)
    assert_same(whole, resumed)
