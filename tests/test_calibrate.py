"""Measuring: everything is measured once, kept, and left out with a note where it cannot be done."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from galley import calibrate as measuring
from galley.base import MIB, Fact, GalleyError
from galley.calibrate import Effort, calibrate
from galley.cli.main import main
from galley.plan import calibration

pytest.importorskip("torch")
pytestmark = pytest.mark.dist

TINY = Effort(
    tokens=(8, 16),
    widths=((64, 32), (32, 128)),
    lap_seconds=0.001,
    products_seconds=5.0,
    copy_bytes=MIB,
    reduce_bytes=(4096, MIB),
    reduce_seconds=60.0,
    disk_bytes=4 * MIB,
)


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[tuple[str, str]] = []

    def phase(self, name: str, total: int | None = None, *, done: int = 0, seconds: float | None = None) -> None:
        self.phases.append(name)

    def note(self, kind: str, message: str) -> None:
        self.notes.append((kind, message))

    def advance(self, count: int = 1, **facts: Fact) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 0.0)
    monkeypatch.setattr(measuring, "FULL", TINY)
    monkeypatch.setattr(measuring, "QUICK", dataclasses.replace(TINY, tokens=(8,)))


def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError("not allowed here")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def test_everything_is_measured_and_kept() -> None:
    listener = Listener()
    made = calibrate(observer=listener)
    assert listener.phases == ["start", "products", "memory", "processes", "disk"]
    assert made.notes == ()
    assert listener.notes == []
    shapes = {
        (product.tokens, product.inner, product.outer) for product in made.products if product.precision == "fp32"
    }
    if made.device == "cpu":
        assert shapes == {(tokens, *widths) for tokens in TINY.tokens for widths in TINY.widths}
    assert {"fp32", "bf16"} <= {product.precision for product in made.products}
    assert all(product.tflops >= 0 for product in made.products)
    assert made.memory_gbps > 0.01
    assert made.reduction is not None
    assert set(made.reduction.seconds_by_bytes) == set(TINY.reduce_bytes)
    assert made.reduction.gbps > 0
    assert made.disk is not None
    assert min(made.disk.write_gbps, made.disk.read_gbps, made.disk.sync_seconds) > 0
    assert calibration.load() == made


def test_where_processes_cannot_start_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)
    listener = Listener()
    made = calibrate(quick=True, observer=listener)
    assert made.reduction is None
    assert made.notes == ("processes of this machine exchange nothing: not allowed here",)
    assert listener.notes == [("fallback", made.notes[0])]
    assert made.disk is not None
    assert calibration.load() == made


def test_processes_that_fail_say_why_and_those_that_hang_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_WORKER", "import sys; sys.exit('no such network')")
    assert calibrate(quick=True).notes == ("processes of this machine exchange nothing: no such network",)
    monkeypatch.setattr(measuring, "_WORKER", "import time; time.sleep(600)")
    monkeypatch.setattr(measuring, "QUICK", dataclasses.replace(TINY, reduce_seconds=0.3))
    started = time.monotonic()
    (note,) = calibrate(quick=True).notes
    assert note.endswith("they did not finish in 0.3 s")
    assert time.monotonic() - started < 30


def test_products_that_take_too_long_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)
    monkeypatch.setattr(measuring, "QUICK", dataclasses.replace(TINY, products_seconds=0.0))
    made = calibrate(quick=True)
    assert len(made.products) == len({product.precision for product in made.products})
    assert any("3 larger products in fp32 were left out" in note for note in made.notes)


def test_a_busy_machine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 100.0)
    assert "come out too low" in calibrate(quick=True).notes[0]


def test_a_full_disk_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(measuring, "_disk", full)
    made = calibrate(quick=True)
    assert made.disk is None
    assert "No space left" in made.notes[-1]


def test_a_cache_that_cannot_be_written_costs_only_the_memory_of_it(
    monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    without_processes(monkeypatch)
    cache_folder.write_text("a file where the folder should be")
    listener = Listener()
    made = calibrate(quick=True, observer=listener)
    assert made.memory_gbps > 0
    assert [kind for kind, _ in listener.notes] == ["fallback", "fallback", "cache-unavailable"]


def test_without_torch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(GalleyError, match="needs torch") as caught:
        calibrate()
    assert (caught.value.code, caught.value.hint) == ("package-missing", "pip install 'galley-train[train]'")


def test_the_verb_prints_figures_or_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without_processes(monkeypatch)
    assert main(["calibrate", "--quick", "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["reduction"] is None
    assert calibration.Calibration.model_validate_json(printed.out) == calibration.load()
    assert printed.err == ""
    assert main(["calibrate"]) == 0
    printed = capsys.readouterr()
    assert "products in fp32" in printed.out
    assert str(calibration.location(calibration.fingerprint())) in printed.out
    assert "fallback: processes of this machine exchange nothing" in printed.err
