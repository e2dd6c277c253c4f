"""A key/value cache whose rows come and go in place: all rows end at the same slot, unused slots are masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM = 64  # slots that a buffer grows by, so that a step writes one slot instead of copying the whole cache


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers' classes are untyped here
    """Keys and values of one layer: buffers [most rows, H, most slots, D], used up to `rows` and `length`."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take shapes, type and device from the first keys and values."""
        self.keys = key_states.new_zeros((0, key_states.shape[1], 0, key_states.shape[3]))
        self.values = value_states.new_zeros((0, value_states.shape[1], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new slots of all rows, and return everything so far, [R, H, length, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.reserve(len(key_states), end)
        self.rows, self.length = len(key_states), end
        used_keys, used_values = self.used
        used_keys[:, :, -key_states.shape[2] :] = key_states
        used_values[:, :, -key_states.shape[2] :] = value_states
        return used_keys, used_values

    @property
    def used(self) -> tuple[Tensor, Tensor]:
        """Keys and values that are in use, [R, H, length, D]."""
        used = (slice(self.rows), slice(None), slice(self.length))
        return self.keys[used], self.values[used]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots after the next `query_length` tokens, and the first one's number."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Used slots."""
        return self.length

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1

    def reserve(self, rows: int, slots: int) -> None:
        """Make the buffers at least so big; zeros, since a masked slot that holds NaN would still spoil its row."""
        most_rows, _, most_slots, _ = self.keys.shape
        if rows <= most_rows and slots <= most_slots:
            return
        most_slots = slots + _ROOM if slots > most_slots else most_slots
        self.keys, self.values = (
            _grown(buffer, used, max(rows, most_rows), most_slots)
            for buffer, used in zip((self.keys, self.values), self.used, strict=True)
        )


class SlotCache(Cache):  # type: ignore[misc]
    """The cache of all layers, and the operations on rows that continuous batching needs."""

    layers: list[SlotLayer]

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=SlotLayer)

    @property
    def length(self) -> int:
        """Used slots."""
        return self.layers[0].length if self.layers else 0

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot of one row, over all layers."""
        buffers = (buffer for layer in self.layers for buffer in (layer.keys, layer.values))
        return sum(buffer.shape[1] * buffer.shape[3] * buffer.element_size() for buffer in buffers)

    def repeat(self, rows: int) -> None:
        """So many rows like the only one."""
        for layer in self.layers:
            layer.reserve(rows, layer.length)
            layer.rows = rows
            for used in layer.used:
                used[1:] = used[:1]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; only those that change their place are moved."""
        moves = [(place, row) for place, row in enumerate(rows) if place != row]
        places, sources = ([move[side] for move in moves] for side in (0, 1))
        for layer in self.layers:
            for used in layer.used if moves else ():
                used[places] = used[sources]
            layer.rows = len(rows)

    def shift(self, slots: int) -> None:
        """Move all rows to the right; to the left for a negative number, which drops their first slots."""
        for layer in self.layers:
            source = [used[:, :, max(0, -slots) :].clone() for used in layer.used]
            layer.reserve(layer.rows, layer.length + slots)
            layer.length += slots
            for used, kept in zip(layer.used, source, strict=True):
                used[:, :, max(0, slots) :] = kept

    def join(self, other: SlotCache) -> None:
        """Add the rows of another cache below these; it may not be longer."""
        for layer, new in zip(self.layers, other.layers, strict=True):
            first, start = layer.rows, layer.length - new.length
            layer.reserve(first + new.rows, layer.length)
            layer.rows += new.rows
            for used, added in zip(layer.used, new.used, strict=True):
                used[first:, :, start:] = added


def _grown(buffer: Tensor, used: Tensor, rows: int, slots: int) -> Tensor:
    bigger = buffer.new_zeros((rows, buffer.shape[1], slots, buffer.shape[3]))
    bigger[: used.shape[0], :, : used.shape[2]] = used
    return bigger
