"""Memory that is kept from step to step, since fresh memory costs a page fault for every 4 KiB.

On a virtual machine that is as slow as the arithmetic that is done on the page.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

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


class Columns(NamedTuple):
    """A matrix, and views of its first columns and of the others."""

    whole: Tensor
    main: Tensor
    low: Tensor


class Scratch:
    """Named buffers of one lane; a name's content lasts until the name is asked for again.

    What was taken once is given again as the same tensor: a view costs as much as a small product.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._buffers: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._columns: dict[tuple[str, int, int, int], Columns] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor in the compute type."""
        return self._take(name, self._dtype, shape)

    def columns(self, name: str, rows: int, main: int, low: int) -> Columns:
        """An uninitialised matrix of `main` columns and `low` more."""
        key = (name, rows, main, low)
        whole = self.take(name, rows, main + low)
        found = self._columns.get(key)
        if found is None or found.whole is not whole:
            found = self._columns[key] = Columns(whole, whole[:, :main], whole[:, main:])
        return found

    def take_float(self, name: str, *shape: int) -> Tensor:
        """An uninitialised float32 tensor."""
        return self._take(name, torch.float32, shape)

    def _take(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        if (view := self._views.get((name, shape))) is not None:
            return view
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name] = torch.empty(size + size // 4, dtype=dtype, device=self._device)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        view = self._views[name, shape] = buffer[:size].view(shape)
        return view
