"""Seconds of the exchanges between devices: bytes over the slowest link of their ring, and a latency for each hop.

Volumes are those of ring algorithms (nccl-tests, PERFORMANCE.md): with `n` devices and a whole tensor of `S` bytes, an
all-gather, reduce-scatter or all-to-all moves (n-1)/n S over each device's link, an all-reduce twice that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from galley.plan.types import Hardware

LINK_EFFICIENCY = 0.85
"""Of a node's links, reached by large messages."""
NETWORK_EFFICIENCY = 0.54
"""Of the adapters between nodes, all of a node's together."""
NETWORK_CONGESTION = 0.29
"""More time of the network for each doubling of the nodes in a ring, beyond two: shared switches, and stragglers."""
HOP_SECONDS = 1.6e-5
NETWORK_HOP_SECONDS = 4.3e-5
_UNKNOWN_GBPS = 10.0


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that exchange something.

    Args:
        size: devices.
        near: of them in one node, or in one domain of the fast link.
        link: bytes a second of a device to those that are near.
        adapter: bytes a second of a device's own adapter to other nodes.
        hop_seconds: of a message to the next device of the ring.
    """

    size: int
    near: int
    link: float
    adapter: float
    hop_seconds: float

    @property
    def bytes_per_second(self) -> float:
        """Of the ring's slowest link: a ring leaves a node through as many adapters as it has devices there."""
        return self.link if self.near >= self.size else min(self.link, self.adapter * self.near)

    def gather(self, whole_bytes: float) -> float:
        """Seconds of an all-gather or a reduce-scatter of a tensor that is this large as a whole."""
        if self.size < 2:
            return 0.0
        return whole_bytes * (self.size - 1) / self.size / self.bytes_per_second + (self.size - 1) * self.hop_seconds

    def reduce(self, whole_bytes: float) -> float:
        """Seconds of an all-reduce: a reduce-scatter and an all-gather."""
        return 2 * self.gather(whole_bytes)

    def exchange(self, own_bytes: float) -> float:
        """Seconds of an all-to-all in which each device sends this many bytes, evenly to all; its own share stays."""
        if self.size < 2:
            return 0.0
        near, far = min(self.near, self.size) - 1, max(0, self.size - self.near)
        seconds = own_bytes / self.size * max(near / self.link, far / min(self.link, self.adapter))
        return seconds + (self.size - 1) * self.hop_seconds


def group_of(hardware: Hardware, size: int, stride: int) -> Group:
    """The group of `size` devices that stand `stride` apart: tensor innermost, then context, data, pipeline."""
    domain = max(1, min(max(hardware.num_devices, hardware.link_devices), hardware.world))
    near = min(size, max(1, domain // stride))
    link = (hardware.link_gbps or hardware.host_gbps or _UNKNOWN_GBPS) * 1e9 * LINK_EFFICIENCY
    adapter = (hardware.network_gbps / 8 or _UNKNOWN_GBPS) * 1e9 * NETWORK_EFFICIENCY
    nodes = size / near
    if nodes > 2:
        adapter /= 1 + NETWORK_CONGESTION * log2(nodes / 2)
    return Group(size, near, link, adapter, HOP_SECONDS if near >= size else NETWORK_HOP_SECONDS)
