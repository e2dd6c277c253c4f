"""Copies in processes: the same results as in one, faults named at once, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from data.environments.playing import FAULTY, assert_same, opened, play
from galley.base import GalleyError

pytestmark = pytest.mark.dist


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_equal_those_of_one_process_whatever_the_number_of_workers(workers: int) -> None:
    one = opened("gym:Acrobot-v1", 5, vector="serial", wrappers={"time-limit": {"steps": 9}})
    many = opened("gym:Acrobot-v1", 5, vector="processes", workers=workers, wrappers={"time-limit": {"steps": 9}})
    try:
        np.testing.assert_array_equal(one.reset(4), many.reset(4))
        assert_same(play(one, 23), play(many, 23))
        serial = opened("gym:Acrobot-v1", 5, vector="serial", wrappers={"time-limit": {"steps": 9}})
        np.testing.assert_array_equal(serial.load_state(many.state()), many.load_state(one.state()))
        assert_same(play(serial, 12, seed=2), play(many, 12, seed=2))
    finally:
        many.close()


def test_masks_and_many_actions_cross_over() -> None:
    one = opened("data.environments.faulty:Masked", 3, vector="serial")
    many = opened("data.environments.faulty:Masked", 3, vector="processes", workers=2)
    try:
        one.reset(0), many.reset(0)
        for mine, theirs in zip(play(one, 7), play(many, 7), strict=True):
            np.testing.assert_array_equal(mine.observations, theirs.observations)
        np.testing.assert_array_equal(one.action_masks(), many.action_masks())
    finally:
        many.close()


def test_a_worker_that_dies_is_named_within_seconds() -> None:
    many = opened(FAULTY, 4, vector="processes", workers=2, kwargs={"fault": "die", "at": 2})
    try:
        many.reset(0)
        play(many, 1)
        begun = time.monotonic()
        with pytest.raises(
            GalleyError, match=r"environment 0: its process \(worker 0\) died: killed by SIGKILL"
        ) as died:
            play(many, 1)
        assert died.value.code == "environment-failed"
        assert time.monotonic() - begun < 5
    finally:
        many.close()


def test_faults_while_opening_come_back_with_their_code() -> None:
    with pytest.raises(GalleyError, match="gym:CartPol-v1") as failed:
        opened("gym:CartPol-v1", 2, vector="processes")
    assert failed.value.code == "data-not-found"
    assert "CartPole" in failed.value.hint


def test_close_ends_the_processes() -> None:
    many = opened(FAULTY, 2, vector="processes")
    children = psutil.Process().children()
    assert len(children) >= 2
    many.close()
    many.close()
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


PARENT = """
import os, time, numpy as np, sys
sys.path[:0] = {path!r}
from galley.data.environments import EnvironmentSettings, open_environments
made = open_environments(EnvironmentSettings("gym:CartPole-v1", 2, vector="processes"))
made.reset(0)
print("ready", flush=True)
time.sleep(60)
"""
"""A script without `if __name__ == "__main__"`, which must not be run again by its workers."""


def memory_files() -> set[str]:
    """Names under which shared memory could be left behind."""
    folder = Path("/dev/shm")
    kinds = ("tmp", "psm_", "pym-", "galley")
    return {file.name for file in folder.iterdir() if file.name.startswith(kinds)} if folder.is_dir() else set()


def test_a_killed_parent_leaves_no_process_and_no_memory(tmp_path: Any) -> None:
    before = memory_files()
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(path=sys.path))
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert memory_files() <= before
