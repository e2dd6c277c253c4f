"""Hardware: detected through control groups, and named in words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.base import GIB, GalleyError
from galley.plan import Hardware, detect, machine, parse, resolve
from galley.plan.catalogue import catalogue, names

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
    assert (found.link, found.link_gbps, found.link_devices, found.network_gbps) == ("NVLink 4", 450, 2, 400)
    assert found.tflops == parse("h100").tflops
    assert 0 < found.host_memory_bytes == resolve("cpu").host_memory_bytes
    fake_nvidia_smi(tmp_path, r"Tesla T4, 15360, 7.5\n")
    assert (detect().name, detect().features) == ("t4-16g", ())
    fake_nvidia_smi(tmp_path, r"NVIDIA Unheard 9000, 24576, 12.0\n")
    assert (detect().name, detect().tflops, detect().link_gbps) == ("NVIDIA Unheard 9000", {}, 0)


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


def test_an_apple_chip_is_recognised_and_shares_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: ())
    monkeypatch.setattr(machine, "is_apple_silicon", lambda: True)
    monkeypatch.setattr(machine, "cpu_name", lambda: "Apple M2 Max")
    found = detect()
    assert (found.name, found.device, found.features) == ("Apple M2 Max", "mps", ("bf16",))
    assert (found.memory_gbps, found.tflops["fp32"]) == (400, 13.6)
    assert found.memory_bytes == found.host_memory_bytes * 3 // 4


@pytest.mark.parametrize(
    ("text", "name", "devices", "nodes"),
    [
        ("h100-80g", "h100-80g", 1, 1),
        ("8x h100-80g", "h100-80g", 8, 1),
        ("8 x H100-80G", "h100-80g", 8, 1),
        ("4 nodes x 8x h100-80g", "h100-80g", 8, 4),
        ("1 node x 2x a100-40g", "a100-40g", 2, 1),
        ("h100", "h100-80g", 1, 1),
        ("8x h100-sxm", "h100-80g", 8, 1),
        ("32x h100-80g", "h100-80g", 8, 4),
        ("1 node x 16x a100-40g", "a100-40g", 16, 1),
        ("72x gb200", "gb200-186g", 4, 18),
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


def test_a_description_brings_the_figures_of_the_device() -> None:
    found = parse("4 nodes x 8x h100-80g")
    assert (found.world, found.memory_gbps, found.tflops["bf16"], found.watts) == (32, 3350, 989, 700)
    assert (found.link, found.link_gbps, found.link_devices, found.network_gbps) == ("NVLink 4", 450, 8, 400)
    assert (found.host_gbps, found.host_memory_bytes, found.nvme_gbps) == (63, 2048 * GIB, 50)
    assert parse("8x gb200").link_devices == 72
    assert parse("8x h100-nvl").link_devices == 2
    assert [parse(name).device for name in ("mi300x", "gaudi3", "910b", "tpu-v5p", "m4-max", "laptop")] == [
        "cuda", "hpu", "npu", "xla", "mps", "cpu",
    ]  # fmt: skip


def test_network_and_memory_can_be_stated() -> None:
    found = parse("2 nodes x 8x mi300x, 8x 200gbps, 2048gb")
    assert (found.name, found.world, found.network_gbps) == ("mi300x-192g", 16, 200)
    assert found.host_memory_bytes == 2048 * 10**9
    assert parse("4 nodes x 8x h100-80g, 400gbps").network_gbps == 400
    assert parse("4 nodes x 8x h100-80g, 1x 100gbps").network_gbps == 12.5
    assert parse("2 nodes x 8x h100-80g, 0.2Tbps").network_gbps == 200
    small = parse("m2-max, 32GiB")
    assert (small.memory_bytes, small.host_memory_bytes) == (24 * GIB, 24 * GIB)
    assert parse("laptop, 8GiB").memory_bytes < 8 * GIB
    assert parse("h100, 512GiB").memory_bytes == parse("h100").memory_bytes


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("mi30x", "no device 'mi30x'", "did you mean mi300x-192g"),
        ("8x h10-80g", "no device 'h10-80g'", "h100-80g"),
        ("quantum", "no device 'quantum'", "known: t4-16g, "),
        ("12x h100-80g", "no whole number of nodes", "1 node x 12x h100-80g"),
        ("0 nodes x 8x h100-80g", "no devices", "start at 1"),
        ("8x h100-80g, 400gpbs", "'400gpbs'", "400gbps"),
        ("8x h100-80g,", "''", "400gbps"),
        ("8x h100-80g, 0gbps", "no network", "400gbps"),
        ("8x h100-80g, 1mb", "'1mb'", "2048gb"),
        ("8x h100-80g, 400gbps, 200gbps", "'200gbps' after another", "once"),
    ],
)
def test_mistakes_in_a_description_are_named(text: str, message: str, hint: str) -> None:
    with pytest.raises(GalleyError) as caught:
        parse(text)
    assert caught.value.code == "hardware-unknown"
    assert message in caught.value.message
    assert hint in caught.value.hint


@given(
    st.sampled_from(sorted(names())),
    st.integers(1, 4096),
    st.integers(1, 72),
    st.none() | st.integers(1, 3200),
    st.none() | st.integers(1, 4096),
    st.booleans(),
)
def test_what_is_written_is_what_is_read(
    name: str, nodes: int, count: int, network: int | None, memory: int | None, tight: bool
) -> None:
    said = [f"{nodes} nodes x {count}x {name}", network and f"{network}gbps", memory and f"{memory}GiB"]
    text = ",".join(part for part in said if part)
    found = parse(text.replace(" ", "") if tight else text.upper())
    assert (found.name, found.num_nodes, found.num_devices) == (names()[name], nodes, count)
    assert found.world == nodes * count
    device = catalogue()[found.name]
    assert found.network_gbps == (network or device.network_gbps)
    if memory and not device.shares_memory:
        assert found.host_memory_bytes == memory * GIB
    assert Hardware.model_validate_json(found.model_dump_json()) == found


@given(st.sampled_from(sorted(catalogue())), st.integers(1, 20_000))
def test_devices_without_nodes_fill_nodes_of_the_usual_size_or_are_refused(name: str, count: int) -> None:
    size = catalogue()[name].devices_per_node
    try:
        found = parse(f"{count}x {name}")
    except GalleyError:
        assert count % size
    else:
        assert found.world == count
        assert found.num_devices <= size


@given(st.text(max_size=40) | st.text("0123456789x nodesh100-80g,gbt.", max_size=30))
def test_any_text_is_hardware_or_a_mistake_with_a_hint(text: str) -> None:
    refused: GalleyError | None = None
    try:
        parse(text)
    except GalleyError as error:
        refused = error
    assert refused is None or (refused.code, bool(refused.hint)) == ("hardware-unknown", True)
