"""Where a job runs: this machine, or one that the recipe names."""

from __future__ import annotations

import re

from galley.base import GIB, GalleyError
from galley.plan import machine
from galley.plan.catalogue import Device, catalogue, recognise
from galley.plan.types import Hardware

_DESCRIPTION = re.compile(
    r"(?:(?P<nodes>\d+)\s*nodes?\s*x\s*)?(?:(?P<count>\d+)\s*x\s*)?(?P<name>[a-z][a-z0-9.-]*)", re.IGNORECASE
)
_AMPERE = 8.0  # first compute capability with bf16 matrix units
# Memory in use elsewhere changes by the second; a plan should not.
_MEMORY_STEP = GIB // 2


def resolve(text: str) -> Hardware:
    """The hardware that a recipe asks for: `auto`, `cpu`, or a description such as `8x h100-80g`.

    Raises:
        GalleyError: `hardware-unknown`.
    """
    if text == "auto":
        return detect()
    return _cpu() if text == "cpu" else parse(text)


def detect() -> Hardware:
    """This machine: its NVIDIA GPUs if there are any, Apple's GPU, or the processor."""
    gpus = machine.nvidia_gpus()
    if gpus:
        smallest = min(gpus, key=lambda gpu: gpu.memory_bytes)
        known = recognise(smallest.name, smallest.memory_bytes)
        return Hardware(
            name=known.name if known else smallest.name,
            device="cuda",
            num_devices=len(gpus),
            memory_bytes=int(smallest.memory_bytes * 0.97),
            cores=machine.usable_cores(),
            features=("bf16",) if smallest.compute_capability >= _AMPERE else (),
        )
    cpu = _cpu()
    if machine.is_apple_silicon():
        # The GPU shares the machine's memory, and the system lets it have about three quarters.
        return cpu.model_copy(
            update={"device": "mps", "memory_bytes": cpu.memory_bytes * 3 // 4, "features": ("bf16",)}
        )
    return cpu


def parse(text: str) -> Hardware:
    """Hardware from words: `h100-80g`, `8x h100-80g`, `4 nodes x 8x h100-80g`.

    Raises:
        GalleyError: `hardware-unknown`, with the nearest name.
    """
    match = _DESCRIPTION.fullmatch(text.strip())
    if match is None:
        raise GalleyError(
            "hardware-unknown",
            f"hardware {text!r} is not understood",
            hint="write auto, cpu, h100-80g, 8x h100-80g or 4 nodes x 8x h100-80g",
        )
    device = _named(match["name"].lower())
    nodes, count = int(match["nodes"] or 1), int(match["count"] or 1)
    if nodes == 0 or count == 0:
        raise GalleyError("hardware-unknown", f"hardware {text!r} has no devices", hint="counts start at 1")
    return Hardware(
        name=device.name,
        device="cuda",
        num_devices=count,
        num_nodes=nodes,
        memory_bytes=device.usable_bytes,
        cores=machine.usable_cores(),
        features=("bf16",) if device.bf16 else (),
    )


def _named(name: str) -> Device:
    known = catalogue()
    if name not in known:
        import difflib

        prefixed = [other for other in known if other.startswith(name)]
        near = prefixed or difflib.get_close_matches(name, known, n=2, cutoff=0.5)
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        raise GalleyError("hardware-unknown", f"there is no device {name!r}", hint=f"{guess}known: {', '.join(known)}")
    return known[name]


def _cpu() -> Hardware:
    memory = machine.available_memory()
    return Hardware(
        name=machine.cpu_name(),
        device="cpu",
        memory_bytes=max(memory // _MEMORY_STEP * _MEMORY_STEP, min(memory, _MEMORY_STEP)),
        cores=machine.usable_cores(),
        features=machine.cpu_features(),
    )
