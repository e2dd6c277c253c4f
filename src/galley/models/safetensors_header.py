"""What safetensors files say about themselves: names, dtypes and sizes, from the header alone."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from galley.base import GalleyError

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format itself."""

_HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I8": "int8", "U8": "uint8"}


@dataclass(frozen=True)
class WeightSummary:
    """Totals over all weight files of a model."""

    parameters: int
    bytes: int
    dtype: str
    """The dtype of most parameters, in torch's words."""
    has_head: bool
    """Whether an output embedding is stored, that is, not tied to the input embedding."""


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor name to dtype, shape and data_offsets.

    Raises:
        GalleyError: `model-invalid` when the file is cut off or not in this format.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise ValueError("it is cut off or not a safetensors file")
            header = json.loads(file.read(length))
        tensors = {name: info for name, info in header.items() if name != "__metadata__"}
        end = max((info["data_offsets"][1] for info in tensors.values()), default=0)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise GalleyError("model-invalid", f"{path} cannot be read: {error}", hint="fetch the model again") from None
    if 8 + length + end != size:
        message = f"{path} should have {8 + length + end} bytes and has {size}"
        raise GalleyError("model-invalid", message, hint="fetch the model again")
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a hub-layout folder, as its index names them, or all of them without an index.

    Raises:
        GalleyError: `model-invalid` when the index is damaged or names a file that is missing.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise GalleyError("model-invalid", f"{index} cannot be read", hint="fetch the model again") from None
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        message = f"{folder} lacks {', '.join(missing[:3])}" + (f" and {len(missing) - 3} more" if missing[3:] else "")
        raise GalleyError("model-invalid", message, hint="fetch the model again: the download is not complete")
    return [folder / name for name in names]


def summarise(folder: Path) -> WeightSummary | None:
    """Totals over the folder's weights, or None when it has no safetensors."""
    files = weight_files(folder)
    if not files:
        return None
    dtypes: Counter[str] = Counter()
    size, has_head = 0, False
    for path in files:
        for name, info in read_header(path).items():
            has_head |= name.endswith(_HEADS)
            dtypes[info["dtype"]] += prod(info["shape"])
            size += info["data_offsets"][1] - info["data_offsets"][0]
    most = dtypes.most_common(1)
    dtype = most[0][0] if most else ""
    return WeightSummary(sum(dtypes.values()), size, _DTYPES.get(dtype, dtype.lower()), has_head)
