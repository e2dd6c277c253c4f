"""A key/value cache whose rows come and go: all rows end at the same slot, shorter ones are padded on the left."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM = 64  # slots that a buffer grows by, so that a step writes one slot instead of copying the whole cache


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers' classes are untyped here
    """Keys and values of one layer, [R, H, capacity, D], of which the first `length` slots are filled."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take shapes, type and device from the first keys and values."""
        self.keys = key_states.new_empty((*key_states.shape[:2], 0, key_states.shape[3]))
        self.values = value_states.new_empty((*value_states.shape[:2], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new slots, and return everything so far, [R, H, length, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        if end > self.keys.shape[2]:
            grow = end + _ROOM - self.keys.shape[2]
            self.keys, self.values = pad(self.keys, (0, 0, 0, grow)), pad(self.values, (0, 0, 0, grow))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots after the next `query_length` tokens, and the first one's number."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Filled slots."""
        return self.length

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1

    def replace(self, keys: Tensor, values: Tensor) -> None:
        """Other rows from now on, [R, H, length, D], with room to grow."""
        self.length = keys.shape[2]
        self.keys, self.values = pad(keys, (0, 0, 0, _ROOM)), pad(values, (0, 0, 0, _ROOM))


class SlotCache(Cache):  # type: ignore[misc]
    """The cache of all layers, and the operations on rows that continuous batching needs."""

    layers: list[SlotLayer]

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=SlotLayer)

    @property
    def length(self) -> int:
        """Filled slots."""
        return self.layers[0].length if self.layers else 0

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot of one row, over all layers."""
        tensors = [states for layer in self.layers for states in (layer.keys, layer.values)]
        return sum(states.shape[1] * states.shape[3] * states.element_size() for states in tensors)

    def repeat(self, rows: int) -> None:
        """So many rows like the only one."""
        for layer in self.layers:
            keys, values = (states[:, :, : layer.length] for states in (layer.keys, layer.values))
            layer.replace(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1))

    def select(self, rows: Tensor, *, drop: int) -> None:
        """Keep these rows, and drop slots on the left that only padding used.

        Args:
            rows: row numbers to keep, [R'].
            drop: slots to drop.
        """
        for layer in self.layers:
            filled = slice(drop, layer.length)
            layer.replace(layer.keys[rows, :, filled], layer.values[rows, :, filled])

    def append(self, other: SlotCache) -> None:
        """Add the rows of another cache below these; the shorter of the two is padded on the left."""
        length = max(self.length, other.length)
        for mine, new in zip(self.layers, other.layers, strict=True):
            keys = [_padded(layer.keys[:, :, : layer.length], length) for layer in (mine, new)]
            values = [_padded(layer.values[:, :, : layer.length], length) for layer in (mine, new)]
            mine.replace(torch.cat(keys), torch.cat(values))


def _padded(states: Tensor, length: int) -> Tensor:
    missing = length - states.shape[2]
    return pad(states, (0, 0, missing, 0)) if missing else states
