"""Memory that is kept from step to step, since fresh memory costs a page fault for every 4 KiB.

On a virtual machine that is as slow as the arithmetic that is done on the page.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

_ALIGN = 64
"""Elements; every buffer starts on a cache line."""


class Slab:
    """Memory for many tensors that are freed together."""

    _CHUNK = 1 << 22

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._chunks: list[Tensor] = []
        self._chunk = self._used = 0

    def take(self, *shape: int) -> Tensor:
        """An uninitialised tensor that is valid until `reset`."""
        size = prod(shape)
        while self._chunk < len(self._chunks) and self._used + size > self._chunks[self._chunk].numel():
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            self._chunks.append(torch.empty(max(size, self._CHUNK), dtype=self._dtype, device=self._device))
            self._used = 0
        start, self._used = self._used, self._used + -(-size // _ALIGN) * _ALIGN
        return self._chunks[self._chunk][start : start + size].view(shape)

    def reset(self) -> None:
        """Everything taken may be overwritten."""
        self._chunk = self._used = 0


class Scratch:
    """Named buffers of one lane; a name's content lasts until the name is asked for again."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor in the compute type."""
        return self._take(name, self._dtype, shape)

    def take_float(self, name: str, *shape: int) -> Tensor:
        """An uninitialised float32 tensor."""
        return self._take(name, torch.float32, shape)

    def _take(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name] = torch.empty(size + size // 4, dtype=dtype, device=self._device)
        return buffer[:size].view(shape)
