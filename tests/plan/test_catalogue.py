"""The catalogue: complete, within physical bounds, and the same in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.base import GIB
from galley.plan.catalogue import Device, catalogue, lookup, names, nearest, recognise

pytestmark = pytest.mark.unit

ALL = list(catalogue().values())
devices = pytest.mark.parametrize("device", ALL, ids=lambda device: device.name)


@devices
def test_every_device_has_every_figure_and_its_source(device: Device) -> None:
    for figure in ("memory_gb", "memory_gbps", "devices_per_node", "network_gbps", "host_gbps"):
        assert getattr(device, figure) > 0, figure
    assert min(device.host_memory_gb, device.nvme_gbps, device.watts, *device.tflops.values()) > 0
    assert len(device.source) > 10
    assert len(device.system) > 10
    assert set(device.tflops) <= {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"}
    assert device.device in ("cuda", "mps", "hpu", "npu", "xla", "cpu")
    assert device.bf16_tflops >= max(device.tflops.get(slower, 0) for slower in ("fp32", "tf32"))
    assert bool(device.cores) == device.shares_memory
    if device.devices_per_node > 1:
        assert device.link
        assert device.link_gbps >= device.network_gbps / 8


@devices
def test_figures_are_of_the_order_that_hardware_has(device: Device) -> None:
    """A slip of a factor of two or ten, or of GB/s for Gbit/s, leaves these bounds."""
    assert device.memory_gbps >= device.link_gbps
    assert device.memory_gbps >= device.host_gbps
    flops_of_a_byte = 1000 * device.bf16_tflops / device.memory_gbps
    assert 5 <= flops_of_a_byte <= 600
    per_watt = device.bf16_tflops / device.watts
    assert 0.01 <= per_watt <= 4
    if "fp8" in device.tflops and "bf16" in device.tflops:
        assert 0.99 <= device.tflops["fp8"] / device.tflops["bf16"] <= 2.03
    if device.shares_memory:
        assert device.host_gbps == device.memory_gbps
        assert device.host_memory_gb >= device.memory_gb


@devices
def test_names_say_the_memory_unless_it_varies(device: Device) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9-]*", device.name)
    assert device.shares_memory or device.name.endswith(f"-{device.memory_gb}g")


def test_no_name_means_two_devices() -> None:
    spelt = [name for device in ALL for name in (device.name, *device.aliases)]
    assert len(spelt) == len(set(spelt)) == len(names())
    for name in spelt:
        assert lookup(name.upper()) in ALL
    assert lookup("h100") is lookup("h100-sxm") is lookup("h100-80g")
    assert lookup("a100") is None  # 40 or 80 GB: both are common


@given(st.sampled_from(sorted(names())), st.integers(0, 20), st.sampled_from("0123456789abcdefgx-"))
def test_one_wrong_letter_is_forgiven_in_the_hint(name: str, place: int, letter: str) -> None:
    typo = name[:place] + letter + name[place + 1 :]
    if lookup(typo) is None and len(name) >= 6:
        assert nearest(typo)
    assert nearest("something else entirely") == []


@pytest.mark.parametrize(
    ("driver", "gib", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-80g"),
        ("NVIDIA H100 PCIe", 79.6, "h100-pcie-80g"),
        ("NVIDIA H100 NVL", 93.6, "h100-nvl-94g"),
        ("NVIDIA H200", 140.4, "h200-141g"),
        ("NVIDIA A100-SXM4-40GB", 40.0, "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", 80.0, "a100-80g"),
        ("A100-SXM4-80GB", 79.2, "a100-80g"),
        ("NVIDIA A100-PCIE-40GB", 40.0, "a100-pcie-40g"),
        ("NVIDIA A100 80GB PCIe", 80.0, "a100-pcie-80g"),
        ("NVIDIA A10", 22.5, "a10-24g"),
        ("NVIDIA A10G", 22.5, "a10g-24g"),
        ("Tesla V100-SXM2-16GB", 15.8, "v100-16g"),
        ("Tesla V100-PCIE-32GB", 31.7, "v100-pcie-32g"),
        ("NVIDIA L4", 22.5, "l4-24g"),
        ("NVIDIA B200", 179.1, "b200-180g"),
        ("NVIDIA GB200", 185.0, "gb200-186g"),
        ("NVIDIA L40", 45.0, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16.0, None),
        ("NVIDIA Unheard 9000", 24.0, None),
        ("Apple M2 Max", 32.0, "m2-max"),
        ("Apple M2", 8.0, "m2"),
    ],
)
def test_devices_are_recognised_by_what_the_driver_calls_them(driver: str, gib: float, name: str | None) -> None:
    found = recognise(driver, int(gib * GIB))
    assert (found and found.name) == name


@devices
def test_each_detected_device_is_recognised_with_and_without_more_words(device: Device) -> None:
    for driver in (device.detected_as, f"NVIDIA {device.detected_as} Something") if device.detected_as else ():
        assert recognise(driver, int(device.memory_gb * 0.96 * GIB)) == device


@devices
def test_the_documentation_shows_the_same_figures(device: Device) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
    assert _row(device) in page.splitlines()


def _row(device: Device) -> str:
    link = f"{device.link}: {device.link_gbps:g}" if device.link else "-"
    cells = (
        f"`{device.name}`",
        str(device.memory_gb),
        f"{device.memory_gbps:g}",
        f"{device.bf16_tflops:g}" + ("" if device.bf16 else " (no bf16)"),
        link,
        f"{device.network_gbps:g}",
        str(device.devices_per_node),
    )
    return f"| {' | '.join(cells)} |"
