"""Where a job runs: this machine, or one that the recipe names."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from galley.base import GIB, GalleyError, parse_bytes
from galley.plan import calibration, machine
from galley.plan.catalogue import Device, catalogue, lookup, nearest, recognise, usable
from galley.plan.types import Hardware

_DEVICES = re.compile(
    r"(?:(?P<nodes>\d+)\s*nodes?\s*x\s*)?(?:(?P<count>\d+)\s*x\s*)?(?P<name>[a-z0-9][a-z0-9.-]*)", re.IGNORECASE
)
_NETWORK = re.compile(r"(?:(?P<count>\d+)\s*x\s*)?(?P<speed>\d+(?:\.\d+)?)\s*(?P<unit>[gt])bps", re.IGNORECASE)
_EXAMPLES = "write auto, cpu, h100-80g, 8x h100-80g or 4 nodes x 8x h100-80g"
_DETAILS = (
    "after the devices may stand 400gbps (network of each device), 8x 200gbps (adapters of a node) "
    "and 2048gb (memory of a node)"
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
    return _measured(_cpu()) if text == "cpu" else parse(text)


def detect() -> Hardware:
    """This machine: its NVIDIA GPUs if there are any, Apple's GPU, or the processor; with its measured speeds."""
    return _measured(_here())


def _here() -> Hardware:
    gpus = machine.nvidia_gpus()
    cpu = _cpu()
    if gpus:
        smallest = min(gpus, key=lambda gpu: gpu.memory_bytes)
        known = recognise(smallest.name, smallest.memory_bytes)
        return Hardware(
            **(_figures(known, len(gpus)) if known else {}),
            name=known.name if known else smallest.name,
            device="cuda",
            num_devices=len(gpus),
            memory_bytes=usable("cuda", smallest.memory_bytes),
            host_memory_bytes=cpu.memory_bytes,
            cores=cpu.cores,
            features=("bf16",) if smallest.compute_capability >= _AMPERE else (),
        )
    if machine.is_apple_silicon():
        known = recognise(cpu.name, cpu.memory_bytes)
        gpu = {"device": "mps", "memory_bytes": usable("mps", cpu.memory_bytes), "features": ("bf16",)}
        return cpu.model_copy(update={**(_figures(known, 1) if known else {}), **gpu})
    return cpu


def _measured(here: Hardware) -> Hardware:
    """With what `galley calibrate` found, if it measured this device."""
    found = calibration.load()
    if found is None or found.device != here.device:
        return here
    return here.model_copy(update={"measured": found.summary()})


def parse(text: str) -> Hardware:
    """Hardware from words: `h100-80g`, `8x h100-80g`, `4 nodes x 8x h100-80g, 400gbps`.

    More devices than the usual node holds make several nodes: `32x h100-80g` is `4 nodes x 8x h100-80g`. After commas
    may follow the network, of each device (`400gbps`) or as adapters that the devices of a node share (`8x 200gbps`),
    and the memory of a node (`2048gb`; of a device where that is the node's memory). What is not said is as usual for
    the device.

    Raises:
        GalleyError: `hardware-unknown`, with the nearest name or an example.
    """
    devices, *details = (part.strip() for part in text.split(","))
    match = _DEVICES.fullmatch(devices)
    if match is None:
        _refuse(f"hardware {text!r} is not understood", _EXAMPLES)
    device = _named(match["name"])
    nodes, count = _layout(text, match["nodes"], match["count"], device)
    said: dict[str, Any] = {}
    for detail in details:
        fact = _detail(detail, device, count)
        if said.keys() & fact.keys():
            _refuse(f"hardware {text!r} says {detail!r} after another figure of that kind", "say it once")
        said |= fact
    usual = {
        "memory_bytes": device.usable_bytes,
        "host_memory_bytes": device.usable_bytes if device.shares_memory else device.host_memory_gb * GIB,
        "cores": device.cores or machine.usable_cores(),
        "features": device.features or (("bf16",) if device.bf16 else ()),
    }
    facts = {**_figures(device, count), **usual, **said}
    return Hardware(name=device.name, device=device.device, num_devices=count, num_nodes=nodes, **facts)


def _layout(text: str, nodes: str | None, count: str | None, device: Device) -> tuple[int, int]:
    """Nodes, and devices of a node."""
    devices = int(count or 1)
    if devices == 0 or int(nodes or 1) == 0:
        _refuse(f"hardware {text!r} has no devices", "counts start at 1")
    if nodes is not None:
        return int(nodes), devices
    size = device.devices_per_node
    if devices <= size:
        return 1, devices
    if devices % size:
        _refuse(
            f"hardware {text!r} fills no whole number of nodes, which usually have {size} of these devices",
            f"say how they are arranged, e.g. 1 node x {devices}x {device.name}",
        )
    return devices // size, size


def _detail(text: str, device: Device, count: int) -> dict[str, Any]:
    """What a part after the comma says, as fields of `Hardware`."""
    network = _NETWORK.fullmatch(text)
    if network is not None:
        speed = float(network["speed"]) * (1000 if network["unit"].lower() == "t" else 1)
        share = speed * int(network["count"]) / count if network["count"] else speed
        if share == 0:
            _refuse(f"hardware with {text!r} has no network", _DETAILS)
        return {"network_gbps": share}
    try:
        memory = parse_bytes(text)
    except ValueError:
        _refuse(f"{text!r} is not understood", _DETAILS)
    if memory < GIB:
        _refuse(f"hardware with {text!r} of memory runs nothing", _DETAILS)
    if not device.shares_memory:
        return {"host_memory_bytes": memory}
    return {"memory_bytes": usable(device.device, memory), "host_memory_bytes": usable(device.device, memory)}


def _named(name: str) -> Device:
    device = lookup(name)
    if device is None:
        near = nearest(name)
        guess = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(catalogue())}"
        _refuse(f"there is no device {name.lower()!r}", guess)
    return device


def _figures(device: Device, count: int) -> dict[str, Any]:
    """Fields of `Hardware` that the catalogue gives, for a node of so many devices."""
    return {
        "memory_gbps": device.memory_gbps,
        "tflops": dict(device.tflops),
        "link": device.link,
        "link_gbps": device.link_gbps,
        "link_devices": device.link_devices or count,
        "network_gbps": device.network_gbps,
        "host_gbps": device.host_gbps,
        "nvme_gbps": device.nvme_gbps,
        "watts": device.watts,
    }


def _refuse(message: str, hint: str) -> NoReturn:
    raise GalleyError("hardware-unknown", message, hint=hint)


def _cpu() -> Hardware:
    memory = machine.available_memory()
    steady = max(memory // _MEMORY_STEP * _MEMORY_STEP, min(memory, _MEMORY_STEP))
    return Hardware(
        name=machine.cpu_name(),
        device="cpu",
        memory_bytes=steady,
        host_memory_bytes=steady,
        cores=machine.usable_cores(),
        features=machine.cpu_features(),
    )
