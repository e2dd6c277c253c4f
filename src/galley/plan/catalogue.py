"""Devices that can be named in a recipe, with their memory and speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Device:
    """One kind of accelerator.

    Args:
        name: as in recipes, e.g. `h100-80g`.
        memory_gb: advertised size in units of 2**30 bytes.
        bf16_tflops: dense peak of its data sheet, in TFLOP/s.
        bf16: whether it multiplies bf16 in hardware.
        detected_as: start of the driver's name for it.
    """

    name: str
    memory_gb: int
    bf16_tflops: float
    bf16: bool = True
    detected_as: str = ""

    @property
    def usable_bytes(self) -> int:
        """What a program can allocate: the driver keeps a part for itself."""
        return int(self.memory_gb * 0.97 * 2**30)


@cache
def catalogue() -> dict[str, Device]:
    """All devices by name."""
    import tomllib

    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {name: Device(name=name, **facts) for name, facts in tomllib.loads(text).items()}


def recognise(driver_name: str, memory_bytes: int) -> Device | None:
    """The device that the driver means, or None; sizes of one kind are told apart by memory."""
    same = [d for d in catalogue().values() if driver_name.startswith(d.detected_as)]
    longest = max((len(d.detected_as) for d in same), default=0)
    same = [d for d in same if len(d.detected_as) == longest]
    return min(same, key=lambda d: abs(d.memory_gb * 2**30 - memory_bytes), default=None)
