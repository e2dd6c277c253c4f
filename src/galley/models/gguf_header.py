"""Read the header of a GGUF file in milliseconds: metadata and tensor shapes, never the weights.

Source: the GGUF specification of ggml (docs/gguf.md), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from galley.base import GalleyError

MAX_ENTRIES = 1_000_000
"""No real file has as many fields or tensors; a larger number means damage."""
MAX_TEXT_BYTES = 16_000_000
LONGEST_KEPT_ARRAY = 64
"""Longer arrays (vocabularies, merges) are skipped: they are not needed to know the shape."""

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9

# ggml type number: name, weights in a block, bytes of a block (ggml.h, ggml-common.h).
_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("float32", 1, 4),
    1: ("float16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("int8", 1, 1),
    25: ("int16", 1, 2),
    26: ("int32", 1, 4),
    27: ("int64", 1, 8),
    28: ("float64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bfloat16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
}


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its shape with the fastest axis first, its type and its place in the data section."""

    shape: tuple[int, ...]
    type: str
    bytes: int
    offset: int

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says about itself. Long arrays are left out of `fields`."""

    path: Path
    version: int
    fields: dict[str, Any] = field(repr=False)
    tensors: dict[str, GgufTensor] = field(repr=False)
    data_start: int
    """Offset of the first weight in the file; everything before it is the header."""

    def text(self, key: str) -> str:
        """A field of text, or an empty string."""
        value = self.fields.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """A whole number, the largest one of a list (one a layer), or 0."""
        value = self.fields.get(key, 0)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        return int(value) if isinstance(value, int) else 0

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    @property
    def common_type(self) -> str:
        """The type of most weights."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors.values():
            counts[tensor.type] += tensor.parameters
        return counts.most_common(1)[0][0] if counts else ""


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file.

    Raises:
        GalleyError: `model-invalid` when the file is damaged, cut off, or no GGUF file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data, path).header()
    except (ValueError, IndexError, struct.error, OSError, OverflowError) as error:
        message = f"{path} is not a GGUF file that can be read: {error}"
        raise GalleyError("model-invalid", message, hint="fetch the file again") from None


class _Reader:
    """A position in the mapped file; every read is checked against its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def header(self) -> GgufHeader:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.at = 4
        version = self.scalar("<I")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not supported (2 and 3 are)")
        num_tensors, num_fields = self.count(), self.count()
        fields: dict[str, Any] = {}
        for _ in range(num_fields):
            key = self.text()
            value = self.value(self.scalar("<I"))
            if value is not None:
                fields[key] = value
        tensors = dict(self.tensor() for _ in range(num_tensors))
        alignment = fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 65536:
            raise ValueError(f"alignment {alignment}")
        start = -(-self.at // alignment) * alignment
        end = start + max((tensor.offset + tensor.bytes for tensor in tensors.values()), default=0)
        if end > len(self.data):
            raise ValueError(f"it should have {end} bytes and has {len(self.data)}")
        return GgufHeader(self.path, version, fields, tensors, start)

    def scalar(self, code: str) -> Any:
        value = struct.unpack_from(code, self.data, self.at)[0]
        self.at += struct.calcsize(code)
        return value

    def count(self) -> int:
        count = int(self.scalar("<Q"))
        if count > MAX_ENTRIES:
            raise ValueError(f"{count} entries")
        return count

    def text(self) -> str:
        length = int(self.scalar("<Q"))
        if length > min(MAX_TEXT_BYTES, len(self.data) - self.at):
            raise ValueError(f"a text of {length} bytes")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """One metadata value, or None for an array that is not kept."""
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise ValueError(f"a field of unknown type {kind}")
        return self.array()

    def array(self) -> list[Any] | None:
        kind, length = self.scalar("<I"), int(self.scalar("<Q"))
        if length > len(self.data):
            raise ValueError(f"an array of {length} values")
        if length <= LONGEST_KEPT_ARRAY:
            return [self.value(kind) for _ in range(length)]
        if kind in _SCALARS:
            self.skip(length * struct.calcsize(_SCALARS[kind]))
        elif kind == _TEXT:
            self.skip_texts(length)
        else:
            raise ValueError(f"a long array of type {kind}")
        return None

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("it is cut off")

    def skip_texts(self, count: int) -> None:
        """Step over many texts: the one loop whose speed matters."""
        data, at = self.data, self.at
        number: Callable[[bytes, str], int] = int.from_bytes  # type: ignore[assignment]
        for _ in range(count):
            at += 8 + number(data[at : at + 8], "little")
        self.at = at
        self.skip(0)

    def tensor(self) -> tuple[str, GgufTensor]:
        name = self.text()
        axes = self.scalar("<I")
        if axes > 8:
            raise ValueError(f"tensor {name!r} of {axes} axes")
        shape = tuple(int(self.scalar("<Q")) for _ in range(axes))
        kind, offset = self.scalar("<I"), int(self.scalar("<Q"))
        if kind not in _TYPES:
            raise ValueError(f"tensor {name!r} of unknown type {kind}")
        type_name, block, block_bytes = _TYPES[kind]
        return name, GgufTensor(shape, type_name, prod(shape) // block * block_bytes, offset)
