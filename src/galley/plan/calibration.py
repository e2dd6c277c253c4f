"""What `galley calibrate` measured on this machine: kept in the user's cache, read by later plans without torch."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat

from galley.base.cache import cache_folder
from galley.plan import machine
from galley.plan.types import Measured, PlanPart

_GIGA = 1e9


class Fingerprint(PlanPart):
    """What the figures depend on; another fingerprint is another machine."""

    cpu: str
    cores: int
    features: tuple[str, ...]
    gpus: tuple[str, ...]
    torch: str


class Product(PlanPart):
    """Speed of one matrix product, (tokens, inner) by (inner, outer)."""

    precision: str
    tokens: int
    inner: int
    outer: int
    tflops: PositiveFloat


class Reduction(PlanPart):
    """All-reduce between processes of this machine: `latency_seconds` and then `gbps` of the tensor's bytes."""

    backend: str
    processes: int
    latency_seconds: float
    gbps: PositiveFloat
    """GB/s."""
    seconds_by_bytes: dict[int, float]
    """What was measured."""

    def seconds(self, size: int) -> float:
        """Expected time for a tensor of so many bytes."""
        return self.latency_seconds + size / (self.gbps * _GIGA)


class Disk(PlanPart):
    """The disk that holds the cache folder."""

    write_gbps: PositiveFloat
    """GB/s of a large file, until it is on the disk."""
    read_gbps: PositiveFloat
    """GB/s of a large file."""
    sync_seconds: float
    """To write a few bytes and wait until they are on the disk."""


class Calibration(PlanPart):
    """All figures of one machine."""

    version: Literal[1] = 1
    fingerprint: Fingerprint
    device: str
    """Where products and copies were measured: cpu, cuda or mps."""
    measured_at: str
    """UTC, ISO 8601."""
    seconds: float
    """That measuring took."""
    quick: bool
    products: tuple[Product, ...]
    memory_gbps: PositiveFloat
    """Copying within the device's memory, bytes read and bytes written, GB/s."""
    reduction: Reduction | None
    disk: Disk | None
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def summary(self) -> Measured:
        """What a plan needs of it: the speed of products by their rows, and that of the memory.

        A product of T rows takes (T + half) / speed for each row's operations; both are fitted by `line` to all
        measured shapes of a precision.
        """
        speeds, halves = {}, {}
        for precision in sorted({product.precision for product in self.products}):
            same = (product for product in self.products if product.precision == precision)
            waiting, speed = line((product.tokens, product.tokens / product.tflops) for product in same)
            speeds[precision], halves[precision] = round(speed, 4), round(waiting * speed, 1)
        return Measured(
            device=self.device,
            on=self.measured_at[:10],
            tflops=speeds,
            half_speed_rows=halves,
            memory_gbps=round(self.memory_gbps, 2),
        )


def fingerprint() -> Fingerprint:
    """Of this machine and installation."""
    return Fingerprint(
        cpu=machine.cpu_name(),
        cores=machine.usable_cores(),
        features=machine.cpu_features(),
        gpus=tuple(gpu.name for gpu in machine.nvidia_gpus()),
        torch=_torch_version(),
    )


def _torch_version() -> str:
    """Read from torch's own file: importing torch takes seconds, and package metadata longer than a plan should."""
    found = importlib.util.find_spec("torch")
    for folder in (found and found.submodule_search_locations) or ():
        version = re.search(r"^__version__ = '(.+)'$", _text(Path(folder) / "version.py"), re.MULTILINE)
        if version is not None:
            return version[1]
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def location(of: Fingerprint) -> Path:
    """The file for a machine; machines that share a home folder have one each."""
    digest = blake2b(of.model_dump_json().encode(), digest_size=8).hexdigest()
    return cache_folder() / "calibration" / f"{digest}.json"


def load(on_note: Callable[[str, str], None] | None = None) -> Calibration | None:
    """What was measured on this machine, or None. A damaged file is said and counts as none.

    Args:
        on_note: told what is damaged.
    """
    here = fingerprint()
    found, damage = _read(location(here), here)
    if damage and on_note is not None:
        on_note("cache-damaged", f"{location(here)} is ignored, and galley calibrate writes it anew: {damage}")
    return found


def _read(path: Path, here: Fingerprint) -> tuple[Calibration | None, str]:
    """What the file holds, and what is wrong with it."""
    try:
        found = Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error).partition("\n")[0]
    return (found, "") if found.fingerprint == here else (None, "it is of another machine")


def save(calibration: Calibration) -> Path:
    """Keep it for later plans; the file is wholly there or not at all.

    Raises:
        GalleyError: `disk-full`.
    """
    from galley.runs import atomic

    path = location(calibration.fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, calibration.model_dump(mode="json"))
    return path


def line(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Latency and speed that explain measured times best: seconds = latency + bytes / speed.

    Least squares of the relative errors, so that the short times count as much as the long ones.

    Args:
        points: bytes and seconds of at least one measurement.

    Returns:
        Latency in seconds, not negative, and speed in bytes a second.
    """
    measured = [(size, seconds) for size, seconds in points if seconds > 0]
    weights = [1 / seconds**2 for _, seconds in measured]
    total = sum(weights)
    mean_size = sum(w * size for w, (size, _) in zip(weights, measured, strict=True)) / total
    mean_time = sum(w * seconds for w, (_, seconds) in zip(weights, measured, strict=True)) / total
    spread = sum(w * (size - mean_size) ** 2 for w, (size, _) in zip(weights, measured, strict=True))
    slope = sum(
        w * (size - mean_size) * (seconds - mean_time) for w, (size, seconds) in zip(weights, measured, strict=True)
    )
    latency = mean_time - slope / spread * mean_size if spread > 0 else 0.0
    if slope > 0 and latency >= 0:
        return latency, spread / slope
    largest, seconds = max(measured)  # noise hides the line: the largest transfer says most about speed
    return 0.0, largest / seconds
