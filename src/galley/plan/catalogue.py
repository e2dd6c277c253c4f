"""Devices that can be named in a recipe, with their memory, speed and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_SAME_MEMORY = 0.15  # drivers report up to 7 % less than the data sheet; the next size is 20 % away


@dataclass(frozen=True, kw_only=True)
class Device:
    """One kind of device: a GPU, another accelerator, or the socket of a processor.

    Args:
        name: as in recipes, e.g. `h100-80g`.
        aliases: other names for it, e.g. `h100`.
        device: as torch calls it: cuda (also for AMD), mps, hpu, npu, xla or cpu.
        memory_gb: advertised size in units of 2**30 bytes.
        memory_gbps: peak of its memory, GB/s.
        tflops: dense peak by precision, TFLOP/s.
        link: the fastest way to another device of the node.
        link_gbps: of that way, GB/s per direction and device.
        link_devices: devices that it joins at most; 0 for those of a node.
        devices_per_node: in the usual system.
        network_gbps: between nodes, Gbit/s per direction and device.
        host_gbps: to the host's memory, GB/s per direction.
        host_memory_gb: memory of a node, in units of 2**30 bytes.
        nvme_gbps: reading local disks, GB/s per node.
        watts: most that it draws.
        cores: of a processor; 0 for others.
        features: instruction sets of a processor, the best first.
        detected_as: start of the driver's name for it.
        source: where the figures of the device are from.
        system: where the figures of the node are from.
    """

    name: str
    memory_gb: int
    memory_gbps: float
    tflops: Mapping[str, float] = field(hash=False)
    devices_per_node: int
    network_gbps: float
    host_gbps: float
    host_memory_gb: int
    nvme_gbps: float
    watts: float
    source: str
    system: str
    device: str = "cuda"
    link: str = ""
    link_gbps: float = 0.0
    link_devices: int = 0
    cores: int = 0
    features: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    detected_as: str = ""

    @property
    def bf16(self) -> bool:
        """Whether it multiplies bf16 in hardware."""
        return "bf16" in self.tflops

    @property
    def bf16_tflops(self) -> float:
        """Dense peak in bf16, or in the next best precision where there is none, TFLOP/s."""
        return next(self.tflops[precision] for precision in ("bf16", "fp16", "fp32") if precision in self.tflops)

    @property
    def shares_memory(self) -> bool:
        """Whether its memory is the host's."""
        return self.device in ("cpu", "mps")

    @property
    def usable_bytes(self) -> int:
        """What a program can allocate of `memory_gb`."""
        return usable(self.device, self.memory_gb * 2**30)


def usable(device: str, memory_bytes: int) -> int:
    """What a program can allocate: the driver keeps a part, and macOS gives the GPU about three quarters."""
    return memory_bytes * 3 // 4 if device == "mps" else int(memory_bytes * 0.97)


@cache
def catalogue() -> dict[str, Device]:
    """All devices by name."""
    import tomllib

    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {name: _device(name, facts) for name, facts in tomllib.loads(text).items()}


@cache
def names() -> dict[str, str]:
    """Every name and alias, with the name that it stands for."""
    aliases = {alias: device.name for device in catalogue().values() for alias in device.aliases}
    return {**{name: name for name in catalogue()}, **aliases}


def lookup(name: str) -> Device | None:
    """The device of that name or alias, in any case of letters."""
    known = names().get(name.lower())
    return None if known is None else catalogue()[known]


def nearest(name: str) -> list[str]:
    """Names that may be meant: those that begin like it, else those spelt like it; no more than four."""
    import difflib

    name = name.lower()
    found = [other for other in catalogue() if other.startswith(name)]
    found = found or [names()[other] for other in difflib.get_close_matches(name, names(), n=4, cutoff=0.6)]
    return list(dict.fromkeys(found))[:4]


def recognise(driver_name: str, memory_bytes: int) -> Device | None:
    """The device that the driver means, or None; sizes of one kind are told apart by memory.

    Args:
        driver_name: such as `NVIDIA A100-SXM4-80GB`.
        memory_bytes: what the driver says that it has.
    """
    short = driver_name.removeprefix("NVIDIA ")
    same = [device for device in catalogue().values() if _begins(short, device.detected_as)]
    longest = max((len(device.detected_as) for device in same), default=0)
    same = [device for device in same if len(device.detected_as) == longest]
    closest = min(same, key=lambda device: _memory_difference(device, memory_bytes), default=None)
    if closest is None or closest.shares_memory or _memory_difference(closest, memory_bytes) <= _SAME_MEMORY:
        return closest
    return None


def _device(name: str, facts: dict[str, Any]) -> Device:
    lists = {key: tuple(value) for key, value in facts.items() if isinstance(value, list)}
    return Device(name=name, **{**facts, **lists})


def _begins(text: str, start: str) -> bool:
    """Whether the text begins with these whole words: `L4` begins no `L40`."""
    return bool(start) and text.startswith(start) and not text[len(start) : len(start) + 1].isalnum()


def _memory_difference(device: Device, memory_bytes: int) -> float:
    return abs(memory_bytes / (device.memory_gb * 2**30) - 1)
