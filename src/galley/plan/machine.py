"""Facts about the machine that this process runs on, read from the operating system without importing torch."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a page-rounded 2**63
CPU_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
"""Instruction sets that decide how fast a model computes, the best first."""


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA device as its driver describes it."""

    name: str
    memory_bytes: int
    compute_capability: float


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that a new process can use: free or reclaimable, and allowed by the control group.

    Args:
        root: where /proc and /sys are; another place in tests.
    """
    meminfo = root / "proc/meminfo"
    if not meminfo.exists():
        import psutil

        return int(psutil.virtual_memory().available)
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return min([available, *(limit - used for limit, used in _memory_groups(root))])


def usable_cores(root: Path = Path("/")) -> int:
    """Processor cores that this process may use: affinity, bounded by the control group's quota."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quotas = [quota / period for quota, period in _cpu_groups(root) if quota > 0 and period > 0]
    return max(1, int(min([cores, *quotas])))


def cpu_features(root: Path = Path("/")) -> tuple[str, ...]:
    """Those of `CPU_FEATURES` that this processor has."""
    cpuinfo = root / "proc/cpuinfo"
    if not cpuinfo.exists():
        return ()
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            return tuple(name for name in CPU_FEATURES if name in flags)
    return ()


def cpu_name(root: Path = Path("/")) -> str:
    """The processor's own name for itself, or its architecture."""
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string").strip() or platform.machine()
    cpuinfo = root / "proc/cpuinfo"
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def is_apple_silicon() -> bool:
    """Whether torch's `mps` device exists here."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def nvidia_gpus() -> tuple[Gpu, ...]:
    """The devices that nvidia-smi lists; none where it is missing or fails."""
    listing = _output("nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits")
    try:
        rows = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.strip()]
        return tuple(Gpu(name, int(mib) * 2**20, float(capability)) for name, mib, capability in rows)
    except ValueError:
        return ()


def _output(program: str, *words: str) -> str:
    """What a program of the system prints; nothing where it is missing, fails or hangs."""
    command = shutil.which(program)
    if command is None:
        return ""
    import subprocess

    try:
        return subprocess.run([command, *words], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control groups, from its own up to the root, for version 2 and version 1."""
    listing = root / "proc/self/cgroup"
    if not listing.exists():
        return []
    folders = []
    for line in listing.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        place = base / path.lstrip("/")
        while True:
            folders.append(place)
            if place == base or base not in place.parents:
                break
            place = place.parent
    return folders


def _memory_groups(root: Path) -> list[tuple[int, int]]:
    """Limit and use, in bytes, of every control group that has a limit."""
    found = []
    for folder in _groups(root, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and limit < _UNLIMITED:
                found.append((limit, (used or 0) - _reclaimable(folder)))
    return found


def _reclaimable(folder: Path) -> int:
    """File cache that counts as used but is given back under pressure."""
    try:
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("inactive_file", fields.get("total_inactive_file", 0)))


def _cpu_groups(root: Path) -> list[tuple[int, int]]:
    """Quota and period, in microseconds, of every control group that has a quota."""
    found = []
    for folder in _groups(root, "cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                found.append((int(quota), int(period)))
        except (OSError, ValueError):
            old_quota, old_period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
            if old_quota is not None and old_period is not None and old_quota > 0:
                found.append((old_quota, old_period))
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
