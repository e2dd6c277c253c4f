"""Hardware: detected through control groups, and named in words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from galley.base import GIB, GalleyError
from galley.plan import detect, machine, parse, resolve
from galley.plan.catalogue import catalogue, recognise

pytestmark = pytest.mark.unit


def fake_root(folder: Path, files: dict[str, str], available_gib: int = 20) -> Path:
    """A file tree like the one of a Linux machine."""
    everything = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {available_gib * 2**20} kB\n", **files}
    for name, text in everything.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_memory_without_limits(tmp_path: Path) -> None:
    assert machine.available_memory(fake_root(tmp_path, {})) == 20 * GIB


def test_memory_under_version_2_groups(tmp_path: Path) -> None:
    root = fake_root(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/job/memory.max": "max\n",
            "sys/fs/cgroup/user/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/user/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/user/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        },
    )
    assert machine.available_memory(root) == 6 * GIB


def test_memory_under_version_1_groups(tmp_path: Path) -> None:
    root = fake_root(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpuset:/\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert machine.available_memory(root) == 3 * GIB


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "100000 100000\n"},
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_a_quota_bounds_the_cores(tmp_path: Path, files: dict[str, str]) -> None:
    assert machine.usable_cores(fake_root(tmp_path, files)) == 1


def test_without_a_quota_affinity_counts(tmp_path: Path) -> None:
    root = fake_root(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert machine.usable_cores(root) == len(os.sched_getaffinity(0))


def test_cpu_features(tmp_path: Path) -> None:
    info = "processor : 0\nmodel name : Some CPU\nflags : fpu avx2 avx512f amx_bf16 avx512_bf16\n"
    root = fake_root(tmp_path, {"proc/cpuinfo": info})
    assert machine.cpu_features(root) == ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
    assert machine.cpu_name(root) == "Some CPU"
    assert machine.cpu_features(tmp_path / "nowhere") == ()


def test_this_machine_agrees_with_psutil() -> None:
    import psutil

    found = resolve("cpu")
    assert found.device == "cpu"
    assert 0 < found.memory_bytes <= psutil.virtual_memory().total
    assert found.memory_bytes > 0.5 * min(psutil.virtual_memory().available, 64 * GIB) - GIB
    assert 1 <= found.cores <= (psutil.cpu_count() or 1)


def fake_nvidia_smi(folder: Path, text: str, code: int = 0) -> None:
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
    script.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for nvidia-smi")
def test_gpus_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    fake_nvidia_smi(tmp_path, r"NVIDIA H100 80GB HBM3, 81559, 9.0\nNVIDIA H100 80GB HBM3, 81559, 9.0\n")
    found = detect()
    assert (found.name, found.device, found.num_devices, found.features) == ("h100-80g", "cuda", 2, ("bf16",))
    assert 75 * GIB < found.memory_bytes < 80 * GIB
    fake_nvidia_smi(tmp_path, r"Tesla T4, 15360, 7.5\n")
    assert (detect().name, detect().features) == ("t4-16g", ())
    fake_nvidia_smi(tmp_path, r"NVIDIA Unheard 9000, 24576, 12.0\n")
    assert detect().name == "NVIDIA Unheard 9000"


@pytest.mark.parametrize(("text", "code"), [("", 0), ("No devices were found", 6), ("[N/A], [N/A], [N/A]", 0)])
def test_a_broken_driver_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    fake_nvidia_smi(tmp_path, text, code)
    assert machine.nvidia_gpus() == ()


def test_a_hanging_driver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", 10)

    monkeypatch.setattr("shutil.which", lambda _: "/bin/true")
    monkeypatch.setattr(subprocess, "run", hang)
    assert machine.nvidia_gpus() == ()


@pytest.mark.parametrize(
    ("text", "name", "devices", "nodes"),
    [
        ("h100-80g", "h100-80g", 1, 1),
        ("8x h100-80g", "h100-80g", 8, 1),
        ("8 x H100-80G", "h100-80g", 8, 1),
        ("4 nodes x 8x h100-80g", "h100-80g", 8, 4),
        ("1 node x 2x a100-40g", "a100-40g", 2, 1),
    ],
)
def test_hardware_in_words(text: str, name: str, devices: int, nodes: int) -> None:
    found = parse(text)
    assert (found.name, found.num_devices, found.num_nodes, found.device) == (name, devices, nodes, "cuda")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("8x h100-80gb", "did you mean h100-80g"), ("a100", "a100-40g or a100-80g"), ("eight gpus", "8x h100-80g"),
     ("0x h100-80g", "start at 1"), ("", "write auto")],
)  # fmt: skip
def test_unknown_hardware_gets_a_guess(text: str, hint: str) -> None:
    with pytest.raises(GalleyError) as caught:
        resolve(text)
    assert caught.value.code == "hardware-unknown"
    assert hint in caught.value.hint


def test_the_catalogue_is_consistent() -> None:
    for name, device in catalogue().items():
        assert re.fullmatch(r"[a-z0-9]+-\d+g", name)
        assert name.endswith(f"-{device.memory_gb}g")
        found = recognise(f"{device.detected_as} something", int(device.memory_gb * 0.96 * GIB))
        assert found == device
