"""Whole jobs over every task: resume is a continuation, runs are never overwritten, nothing is silent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import jobs
from galley import engines, job
from galley.base import GalleyError, SilentObserver
from galley.engines import OutOfMemoryError
from galley.engines.single import Single
from galley.runs import RunFolder, list_runs, lock

pytestmark = pytest.mark.tiny

TASKS = ["chat", "complete", "classify"]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def steps_of(folder: RunFolder) -> list[int]:
    """Steps of the training lines of metrics.jsonl."""
    return [line["step"] for line in folder.metrics() if "loss" in line]


class Interrupter(SilentObserver):
    """Asks for an interruption, as Ctrl-C does, after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advance(self, count: int = 1, **facts: Any) -> None:
        self.left -= count
        if count and self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_holds_all_that_the_design_promises(task: str, tmp_path: Path) -> None:
    folder = jobs.run(jobs.recipe(task, tmp_path), tmp_path / "runs")
    assert folder.status() == "done"
    assert steps_of(folder) == list(range(1, 8))
    for name in ("recipe.yaml", "plan.json", "manifest.json", "metrics.jsonl", "events.jsonl", "result/README.md"):
        assert (folder.path / name).is_file(), name
    assert (folder.result / "loss.png").is_file()
    assert folder.manifest()["data"]["fingerprint"]
    assert {"step", "tokens", "seconds", "loss", "learning_rate", "grad_norm"} <= set(next(iter(folder.metrics())))
    assert any("held_out_loss" in line for line in folder.metrics())
    assert (folder.path / "checkpoints" / "last").resolve().name == "step-000007"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("after", [1, 3, 6])
def test_interrupted_and_resumed_equals_undisturbed(task: str, after: int, tmp_path: Path) -> None:
    whole = jobs.run(jobs.recipe(task, tmp_path), tmp_path / "whole")
    with pytest.raises(GalleyError) as caught:
        jobs.run(jobs.recipe(task, tmp_path), tmp_path / "broken", observer=Interrupter(after))
    assert caught.value.code == "interrupted"
    assert caught.value.exit == 130
    [broken] = list_runs(tmp_path / "broken")
    assert broken.status() == "interrupted"
    resumed = jobs.run(jobs.recipe(task, tmp_path), tmp_path / "broken")
    assert steps_of(resumed) == steps_of(whole)
    assert [m["loss"] for m in resumed.metrics() if "loss" in m] == [m["loss"] for m in whole.metrics() if "loss" in m]
    assert jobs.same(jobs.weights(whole), jobs.weights(resumed))


def test_killed_at_any_moment_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path, budget={"steps": 60}, checkpoint={"every": 2})
    whole = jobs.run(asked, tmp_path / "whole")
    chance = random.Random(5)
    for _ in range(4):
        code = f"import jobs, pathlib; jobs.run({asked!r}, pathlib.Path({str(tmp_path / 'broken')!r}))"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        metrics = tmp_path / "broken" / "classify" / "metrics.jsonl"
        before = len(metrics.read_bytes()) if metrics.exists() else 0
        while process.poll() is None and (not metrics.exists() or len(metrics.read_bytes()) <= before):
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    broken = RunFolder.open(tmp_path / "broken" / "classify")
    resumed = broken if broken.status() == "done" else jobs.run(asked, tmp_path / "broken")
    assert steps_of(resumed) == steps_of(whole)
    assert jobs.same(jobs.weights(whole), jobs.weights(resumed))


def test_a_finished_name_is_never_overwritten(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path)
    folder = jobs.run(asked, tmp_path)
    before = jobs.weights(folder)
    for resume in ("auto", "never"):
        with pytest.raises(GalleyError) as caught:
            jobs.run(asked, tmp_path, resume=resume)
        assert caught.value.code == "run-exists"
    assert jobs.same(before, jobs.weights(folder))


def test_another_recipe_does_not_continue_a_run(tmp_path: Path) -> None:
    with pytest.raises(GalleyError):
        jobs.run(jobs.recipe("classify", tmp_path), tmp_path, observer=Interrupter(2))
    with pytest.raises(GalleyError) as caught:
        jobs.run(jobs.recipe("classify", tmp_path, seed=1), tmp_path)
    assert caught.value.code == "run-exists"


def test_changed_data_does_not_continue_a_run(tmp_path: Path) -> None:
    asked = jobs.recipe("chat", tmp_path)
    with pytest.raises(GalleyError):
        jobs.run(asked, tmp_path, observer=Interrupter(2))
    path = Path(asked["data"])
    path.write_text(path.read_text().replace("oar", "owl"))
    with pytest.raises(GalleyError) as caught:
        jobs.run(asked, tmp_path)
    assert caught.value.code == "checkpoint-mismatch"


def test_two_trainings_never_share_a_folder(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path)
    with pytest.raises(GalleyError):
        jobs.run(asked, tmp_path, observer=Interrupter(2))
    code = f"import jobs, pathlib; jobs.run({asked!r}, pathlib.Path({str(tmp_path)!r}))"
    with RunFolder.open(tmp_path / "classify").lock():
        other = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert other.returncode != 0
    assert f"process {os.getpid()}" in other.stderr


def test_recipes_without_a_name_resume_or_get_a_new_folder(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path)
    del asked["name"]
    with pytest.raises(GalleyError):
        jobs.run(asked, tmp_path / "runs", observer=Interrupter(2))
    first = jobs.run(asked, tmp_path / "runs")
    second = jobs.run(asked, tmp_path / "runs")
    assert [first.name, second.name] == ["classify-digits-001", "classify-digits-002"]
    assert jobs.same(jobs.weights(first), jobs.weights(second))


def test_extended_run_goes_on_from_where_it_was(tmp_path: Path) -> None:
    folder = jobs.run(jobs.recipe("classify", tmp_path), tmp_path)
    longer = job.extend(folder, ["budget.steps=+5"])
    assert steps_of(longer) == list(range(1, 13))
    assert any(event["kind"] == "extended" for event in longer.events())
    with pytest.raises(GalleyError):
        job.extend(longer, ["budget.steps=5"])
    with pytest.raises(GalleyError):
        job.extend(longer, ["optimizer.learning_rate=1"])


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path)
    folder = jobs.run(asked, tmp_path / "runs")
    before = (folder.path / "events.jsonl").read_bytes()
    with pytest.raises(GalleyError) as caught:
        jobs.run(asked, tmp_path / "runs", resume=folder.name)
    assert caught.value.code == "run-exists"
    assert (folder.path / "events.jsonl").read_bytes() == before


def test_images_are_counted_in_rows_and_words_in_tokens(tmp_path: Path) -> None:
    for task, unit in (("classify", "rows"), ("complete", "tokens")):
        (tmp_path / task).mkdir()
        folder = jobs.run(jobs.recipe(task, tmp_path / task), tmp_path / "runs")
        assert all(f"{unit}_per_second" in line for line in folder.metrics() if "loss" in line)


def test_the_reloaded_result_is_what_was_trained_to_the_bit(tmp_path: Path) -> None:
    folder = jobs.run(jobs.recipe("chat", tmp_path), tmp_path / "runs")
    reloaded = folder.read_result("parity.json")["reloaded"]
    assert reloaded == {"max_difference": 0.0, "agreement": 1.0}


def test_only_a_finished_run_is_extended(tmp_path: Path) -> None:
    with pytest.raises(GalleyError):
        jobs.run(jobs.recipe("classify", tmp_path), tmp_path, observer=Interrupter(2))
    (folder,) = list_runs(tmp_path)
    with pytest.raises(GalleyError) as caught:
        job.extend(folder, ["budget.steps=+5"])
    assert caught.value.code == "run-unfinished"
    assert "galley resume" in (caught.value.hint or "")


def test_a_corrected_recipe_takes_the_name_of_a_run_that_learned_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs.recipe("classify", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Single, "setup", _fails)
        with pytest.raises(RuntimeError):
            jobs.run(asked, tmp_path / "runs")
    asked["optimizer"] = {"learning_rate": 0.002}
    assert jobs.run(asked, tmp_path / "runs").status() == "done"
    asked["optimizer"] = {"learning_rate": 0.001}
    with pytest.raises(GalleyError) as caught:  # but never that of a run that did
        jobs.run(asked, tmp_path / "runs")
    assert caught.value.code == "run-exists"


def _fails(*_: Any) -> None:
    raise RuntimeError("a mistake in the recipe")


@pytest.mark.parametrize("named", [True, False])
def test_two_that_start_at_once_get_a_name_each_or_a_lock(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs.recipe("classify", tmp_path)
    if not named:
        del asked["name"]
    create = RunFolder.create
    others: list[RunFolder] = []

    def slow(root: Path, name: str, **content: Any) -> RunFolder:
        if not others:  # the other process is a moment faster
            others.append(create(root, name, **content))
        return create(root, name, **content)

    monkeypatch.setattr(RunFolder, "create", slow)
    if not named:
        assert jobs.run(asked, tmp_path / "runs").name.endswith("-002")
        return
    monkeypatch.setattr(lock, "exclusive", _locked)
    with pytest.raises(GalleyError) as caught:
        jobs.run(asked, tmp_path / "runs")
    assert caught.value.code == "run-locked"


def _locked(folder: Path) -> Any:
    raise GalleyError("run-locked", f"another process is training in {folder}", hint="wait for it")


def test_weights_that_are_not_numbers_are_never_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ruined(Single):
        """An engine whose second update ruins the weights without a sign in the loss."""

        steps = 0

        def step(self, loss: Any, batches: Any, learning_rate: float) -> Any:
            result = super().step(loss, batches, learning_rate)
            self.steps += 1
            if self.steps == 2:
                next(self.module.parameters()).data.fill_(float("nan"))
            return result

    monkeypatch.setattr(engines.registry, "get", lambda name: Ruined)
    with pytest.raises(GalleyError) as caught:
        jobs.run(jobs.recipe("classify", tmp_path, budget={"steps": 2}), tmp_path / "runs")
    assert caught.value.code == "loss-not-finite"
    (folder,) = list_runs(tmp_path / "runs")
    assert folder.status() == "failed"
    assert not any((folder.result).iterdir())


def test_exhausted_memory_halves_the_micro_batch_and_not_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs.recipe("complete", tmp_path)
    whole = jobs.run(asked, tmp_path / "whole")

    class Small(Single):
        """An engine whose memory takes two rows."""

        def step(self, loss: Any, batches: Any, learning_rate: float) -> Any:
            if any(batch.num_rows > 2 for batch in batches):
                raise OutOfMemoryError("no room")
            return super().step(loss, batches, learning_rate)

    monkeypatch.setattr(engines.registry, "get", lambda name: Small)
    small = jobs.run(asked, tmp_path / "small")
    assert [e["kind"] for e in small.events()].count("out-of-memory") == 2
    for a, b in zip(whole.metrics(), small.metrics(), strict=True):
        if "loss" in a:
            assert a["loss"] == pytest.approx(b["loss"], rel=2e-3)
            assert a["rows"] == b["rows"]


def test_a_row_that_never_fits_is_a_clear_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Single):
        """An engine without any memory."""

        def step(self, loss: Any, batches: Any, learning_rate: float) -> Any:
            raise OutOfMemoryError("no room")

    monkeypatch.setattr(engines.registry, "get", lambda name: Full)
    with pytest.raises(GalleyError) as caught:
        jobs.run(jobs.recipe("complete", tmp_path), tmp_path)
    assert caught.value.code == "out-of-memory"
    assert list_runs(tmp_path)[0].status() == "failed"


def test_a_time_limit_ends_cleanly_with_a_result(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path, budget={"steps": 100000, "minutes": 0.02})
    folder = jobs.run(asked, tmp_path)
    assert folder.status() == "done"
    assert 0 < steps_of(folder)[-1] < 100000
    assert any(event["kind"] == "time-limit" for event in folder.events())
    assert jobs.weights(folder)
    rates = [line["learning_rate"] for line in folder.metrics() if "learning_rate" in line]
    assert rates[-1] < 0.5 * max(rates), "the schedule ends with the time"


def test_the_trailing_batch_is_one_correct_step(tmp_path: Path) -> None:
    """Seven rows, three at once, two epochs: six steps, the last rate as promised (CONFORMANCE 3)."""
    asked = jobs.recipe("complete", tmp_path, budget={"epochs": 2}, evaluate={"held_out": 0})
    del asked["evaluate"]["every"]
    del asked["budget"]["steps"]
    path = Path(asked["data"])
    path.write_text("\n".join(path.read_text().splitlines()[:7]))
    asked["override"]["global_batch"] = 3
    folder = jobs.run(asked, tmp_path / "runs")
    lines = [line for line in folder.metrics() if "loss" in line]
    assert [line["rows"] for line in lines] == [3, 3, 1, 3, 3, 1]
    assert folder.plan()["steps"] == 6
    assert lines[-1]["learning_rate"] == pytest.approx(0.1 * folder.plan()["optimizer"]["learning_rate"])
