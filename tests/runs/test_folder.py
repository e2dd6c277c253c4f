"""The run folder: created whole, never overwritten, one training at a time, listed fast."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from galley.base import GalleyError
from galley.runs import RunFolder, find_run, free_name, list_runs

pytestmark = pytest.mark.unit

HOLD = """
import sys, time
from pathlib import Path
from galley.runs import RunFolder
run = RunFolder.open(Path(sys.argv[1]))
with run.lock():
    run.set_status("running")
    print("held", flush=True)
    time.sleep(60)
"""


def create(root: Path, name: str = "faq") -> RunFolder:
    return RunFolder.create(root, name, recipe="task: chat\n", plan={"steps": 20}, manifest={"seed": 0})


def hold(run: RunFolder) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_run_holds_what_it_was_given(tmp_path: Path) -> None:
    run = create(tmp_path / "runs")
    again = RunFolder.open(tmp_path / "runs" / "faq")
    assert again == run
    assert (again.recipe(), again.plan(), again.manifest()) == ("task: chat\n", {"steps": 20}, {"seed": 0})
    assert (again.name, again.status(), again.newest_metrics(), list(again.events())) == ("faq", "new", {}, [])
    assert {p.name for p in run.path.iterdir()} == {
        "recipe.yaml",
        "plan.json",
        "manifest.json",
        "checkpoints",
        "result",
    }


def test_a_name_is_never_overwritten(tmp_path: Path) -> None:
    create(tmp_path)
    before = (tmp_path / "faq" / "manifest.json").read_bytes()
    with pytest.raises(GalleyError) as caught:
        create(tmp_path)
    assert caught.value.code == "run-exists"
    assert (tmp_path / "faq" / "manifest.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["faq"]


def test_of_many_creators_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(6) as pool:
        results = pool.map(_try_to_create, [tmp_path] * 6)
    assert sorted(results) == ["created", *["run-exists"] * 5]
    assert RunFolder.open(tmp_path / "faq").plan() == {"steps": 20}
    assert [p.name for p in tmp_path.iterdir()] == ["faq"]


def _try_to_create(root: Path) -> str:
    try:
        create(root)
    except GalleyError as error:
        return error.code
    return "created"


@pytest.mark.parametrize("name", ["../escape", "a/b", "", ".hidden", "..", "x" * 101, "a\0b"])
def test_no_name_leads_out_of_the_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(GalleyError) as caught:
        create(tmp_path / "runs", name)
    assert caught.value.code == "recipe-invalid"
    run = create(tmp_path / "runs")
    with pytest.raises(GalleyError):
        run.write_result(name, {})


def test_a_second_training_is_refused_and_told_who_holds(tmp_path: Path) -> None:
    run = create(tmp_path)
    process = hold(run)
    try:
        assert run.status() == "running"
        with pytest.raises(GalleyError) as caught, run.lock():
            pass
        assert caught.value.code == "run-locked"
        assert f"process {process.pid}, since 20" in caught.value.message
    finally:
        process.kill()
        process.wait()


def test_a_kill_releases_the_lock_and_counts_as_interrupted(tmp_path: Path) -> None:
    run = create(tmp_path)
    process = hold(run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run.status() == "interrupted"
    with run.lock():
        run.set_status("running")
        assert run.status() == "running"
        run.set_status("done")
    assert run.status() == "done"


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    run = create(tmp_path)
    with pytest.raises(ValueError, match="boom"), run.lock():
        raise ValueError("boom")
    with run.lock():
        pass


def test_looking_at_a_run_never_stops_its_training_from_starting(tmp_path: Path) -> None:
    run = create(tmp_path)
    with run.lock():
        run.set_status("running")
    stop = time.monotonic() + 1.0

    def look() -> None:
        while time.monotonic() < stop:
            run.status()

    with ThreadPoolExecutor(3) as pool:
        looks = [pool.submit(look) for _ in range(3)]
        while time.monotonic() < stop:
            with run.lock():
                assert run.status() == "running"
        for done in looks:
            done.result()


def test_status_keeps_its_message_and_the_manifest(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.set_status("failed", "the loss became NaN")
    assert (run.status(), run.status_message(), run.manifest()) == ("failed", "the loss became NaN", {"seed": 0})
    run.rewrite(manifest={"seed": 1}, plan={"steps": 40}, recipe="task: chat\nseed: 1\n")
    assert (run.status(), run.manifest(), run.plan()) == ("failed", {"seed": 1}, {"steps": 40})
    assert run.recipe().endswith("seed: 1\n")


def test_results_and_events(tmp_path: Path) -> None:
    run = create(tmp_path)
    with pytest.raises(GalleyError) as caught:
        run.read_result("verdict.json")
    assert caught.value.code == "run-unfinished"
    run.write_result("verdict.json", {"better": True})
    assert run.read_result("verdict.json") == {"better": True}
    run.event("truncated", "3 rows were cut", rows=3)
    (event,) = run.events()
    assert (event["kind"], event["message"], event["rows"]) == ("truncated", "3 rows were cut", 3)
    assert abs(event["time"] - time.time()) < 60


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    run = create(tmp_path)
    (run.path / "manifest.json").write_text("{")
    with pytest.raises(GalleyError, match=r"manifest\.json") as caught:
        run.status()
    assert caught.value.code == "run-damaged"


def test_runs_are_listed_oldest_first_without_strangers(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number, name in enumerate(("b", "a", "c")):
        run = create(root, name)
        os.utime(run.path / "recipe.yaml", (number, number))
    (root / "notes").mkdir()
    (root / "file.txt").write_text("x")
    outside = create(tmp_path / "outside", "secret")
    (root / "leak").symlink_to(outside.path)
    assert [run.name for run in list_runs(root)] == ["b", "a", "c"]
    assert list_runs(tmp_path / "nowhere") == []


def test_a_run_is_found_by_name_or_path_with_a_guess(tmp_path: Path) -> None:
    run = create(tmp_path, "faq-chat")
    assert find_run(tmp_path, "faq-chat") == run
    assert find_run(tmp_path / "other", str(run.path)) == run
    with pytest.raises(GalleyError) as caught:
        find_run(tmp_path, "faq-chta")
    assert caught.value.code == "run-not-found"
    assert "did you mean 'faq-chat'?" in caught.value.hint
    with pytest.raises(GalleyError):
        RunFolder.open(tmp_path)


def test_free_names_count_up(tmp_path: Path) -> None:
    assert free_name(tmp_path, "chat-faq") == "chat-faq-001"
    create(tmp_path, "chat-faq-001")
    create(tmp_path, "chat-faq-003")
    assert free_name(tmp_path, "chat-faq") == "chat-faq-002"
    assert free_name(tmp_path, "chat-常见 问题") == "chat-001"
    assert free_name(tmp_path, "../..") == "run-001"


def test_a_thousand_runs_are_listed_in_a_second(tmp_path: Path) -> None:
    for number in range(1000):
        folder = tmp_path / f"run-{number:04d}"
        folder.mkdir()
        (folder / "recipe.yaml").write_text("task: chat\n")
        (folder / "manifest.json").write_text('{"status": {"is": "running", "since": 1, "message": ""}}')
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n' * 200)
        (folder / ".lock").touch()
    started = time.process_time()
    facts = [(run.name, run.status(), run.newest_metrics()["loss"]) for run in list_runs(tmp_path)]
    assert time.process_time() - started < 1.0
    assert facts[0] == ("run-0000", "interrupted", 2.0)
    assert len(facts) == 1000


def test_importing_runs_is_light() -> None:
    code = (
        "import sys, galley.runs; print([m for m in ('torch', 'numpy', 'matplotlib', 'filelock') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    for root in (file, file / "runs"):
        with pytest.raises(GalleyError) as caught:
            RunFolder.create(root, "a", recipe="", plan={}, manifest={})
        assert caught.value.code == "run-folder"
        assert str(root) in caught.value.message


def test_a_blank_run_can_be_discarded_unless_it_is_being_trained(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "a", recipe="", plan={}, manifest={})
    assert run.is_blank()
    with run.open_metrics() as metrics:
        metrics.append({"step": 1})
    assert not run.is_blank()
    run.discard()
    assert not list(tmp_path.iterdir())
