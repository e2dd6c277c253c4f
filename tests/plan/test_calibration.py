"""The stored measurement: comes back as it was, is of this machine alone, and says when it is damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.base import MIB
from galley.plan import calibration, machine
from galley.plan.calibration import Calibration, Disk, Product, Reduction

pytestmark = pytest.mark.unit

SPEEDS = ((64, 576, 576, 0.2), (512, 576, 1536, 0.6), (1024, 4096, 4096, 1.1))


def made(speeds: tuple[tuple[int, int, int, float], ...] = SPEEDS) -> Calibration:
    """A measurement of this machine."""
    products = tuple(Product(precision="bf16", tokens=t, inner=i, outer=o, tflops=speed) for t, i, o, speed in speeds)
    return Calibration(
        fingerprint=calibration.fingerprint(),
        device="cpu",
        measured_at="2026-01-01T00:00:00+00:00",
        seconds=7.5,
        quick=True,
        products=products,
        memory_gbps=21.5,
        reduction=Reduction(
            backend="gloo", processes=2, latency_seconds=2e-4, gbps=2.5, seconds_by_bytes={4096: 2e-4, MIB: 6e-4}
        ),
        disk=Disk(write_gbps=0.4, read_gbps=1.5, sync_seconds=1e-3),
        notes=("nothing else",),
    )


def test_what_is_saved_is_loaded(cache_folder: Path) -> None:
    assert calibration.load() is None
    path = calibration.save(made())
    assert path.parent == cache_folder / "calibration"
    assert calibration.load() == made()
    calibration.save(made().model_copy(update={"memory_gbps": 30.0}))
    again = calibration.load()
    assert again is not None
    assert again.memory_gbps == 30.0
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", ["", "{}", '{"version": 2}', "not JSON", "[1]"])
def test_a_damaged_file_is_ignored_and_said(damage: str, cache_folder: Path) -> None:
    path = calibration.save(made())
    path.write_text(damage)
    said: list[tuple[str, str]] = []
    assert calibration.load(lambda kind, message: said.append((kind, message))) is None
    ((kind, message),) = said
    assert kind == "cache-damaged"
    assert str(path) in message
    assert calibration.load() is None


def test_every_cut_of_the_file_is_ignored(cache_folder: Path) -> None:
    path = calibration.save(made())
    whole = path.read_bytes()
    for length in range(0, len(whole) - 2, 97):
        path.write_bytes(whole[:length])
        assert calibration.load() is None
    path.write_bytes(b"\xff\xfe" + whole)
    assert calibration.load() is None


@pytest.mark.parametrize("change", ["cpu_name", "usable_cores", "cpu_features", "nvidia_gpus"])
def test_another_machine_has_no_measurement(change: str, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = calibration.save(made())
    others = {
        "cpu_name": "Another",
        "usable_cores": 77,
        "cpu_features": ("other",),
        "nvidia_gpus": (machine.Gpu("NVIDIA H100 80GB HBM3", 80 * 2**30, 9.0),),
    }
    monkeypatch.setattr(machine, change, lambda: others[change])
    assert calibration.load() is None
    stolen = calibration.location(calibration.fingerprint())
    stolen.write_bytes(path.read_bytes())
    said: list[str] = []
    assert calibration.load(lambda _, message: said.append(message)) is None
    assert "another machine" in said[0]


def test_loading_imports_no_torch_but_knows_its_version() -> None:
    code = "import sys; from galley.plan import calibration as c; print(c.fingerprint().torch, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [pytest.importorskip("torch").__version__, "False"]


@given(st.lists(st.tuples(*[st.integers(1, 2**15)] * 3, st.floats(1e-2, 1e3)), min_size=1, max_size=8))
def test_whatever_was_measured_gives_plans_a_speed(speeds: list[tuple[int, int, int, float]]) -> None:
    found = made(tuple(speeds)).summary()
    assert set(found.tflops) == {"bf16"}
    assert 0 < found.flops("bf16", 1) <= found.flops("bf16", 4096) < float("inf")


@given(st.floats(1e-6, 1e-2), st.floats(1e7, 1e11), st.sets(st.integers(12, 30), min_size=2, max_size=8))
def test_the_line_through_exact_times_is_found(latency: float, speed: float, sizes: set[int]) -> None:
    points = [(2**size, latency + 2**size / speed) for size in sizes]
    found = calibration.line(points)
    expected = [found[0] + size / found[1] for size, _ in points]
    assert expected == pytest.approx([seconds for _, seconds in points], rel=1e-3)


@given(st.lists(st.tuples(st.integers(1, 2**30), st.floats(1e-7, 10)), min_size=1, max_size=8))
def test_any_times_give_a_latency_and_a_speed_that_make_sense(points: list[tuple[int, float]]) -> None:
    latency, speed = calibration.line(points)
    assert latency >= 0
    assert speed > 0


def test_a_reduction_takes_latency_and_time_for_its_bytes() -> None:
    reduction = made().reduction
    assert reduction is not None
    assert reduction.seconds(0) == 2e-4
    assert reduction.seconds(5 * 10**9) == pytest.approx(2.0002)
