"""Save and load a training's state: tensors in safetensors, everything else in JSON, and no pickle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import Tensor

_TENSORS, _TREE = "state.safetensors", "state.json"
_FORMAT = 1
# What JSON cannot say is an object with one key that starts with a dollar sign.
_TENSOR, _FLOAT, _TUPLE, _DICT = "$tensor", "$float", "$tuple", "$dict"


def save(folder: Path, state: Mapping[str, Any]) -> None:
    """Write state.safetensors and state.json into a folder; `load` gives back exactly the same.

    Tensors keep dtype, shape and every bit; one tensor that stands in two places is stored once and stays shared.

    Args:
        folder: an existing folder, usually one that `Checkpoints.save` hands out.
        state: nested mappings, lists and tuples of tensors, numbers, strings, booleans and None. Keys may be integers.

    Raises:
        TypeError: naming the place of a value of any other kind.
    """
    from safetensors.torch import save_file

    writer = _Writer()
    tree = writer.encode(state, ())
    save_file(writer.tensors, folder / _TENSORS)
    (folder / _TREE).write_text(json.dumps({"format": _FORMAT, "state": tree}, indent=1), encoding="utf-8")


def load(folder: Path) -> dict[str, Any]:
    """The state that `save` wrote, with tensors on the CPU.

    Raises:
        GalleyError: `checkpoint-missing` when the files are not there, `checkpoint-mismatch` when they are of
            another format, `run-damaged` when they cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        content = json.loads((folder / _TREE).read_bytes())
        tensors = load_file(folder / _TENSORS)
    except FileNotFoundError as error:
        raise GalleyError("checkpoint-missing", f"{folder} holds no state: {error}") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise GalleyError(
            "run-damaged", f"{folder} cannot be read: {error}", hint="an older checkpoint may load"
        ) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise GalleyError(
            "checkpoint-mismatch", f"{folder} was written in another format", hint="use the Galley that wrote it"
        )
    state = _decode(content["state"], tensors)
    assert isinstance(state, dict)
    return state


@dataclass
class _Writer:
    """Collects tensors under readable, unique names while the tree is turned into JSON."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _storages: set[int] = field(default_factory=set)

    def encode(self, value: Any, place: tuple[object, ...]) -> Any:
        from torch import Tensor

        if isinstance(value, Tensor):
            return {_TENSOR: self._add(value, place)}
        if isinstance(value, Mapping):
            return self._encode_mapping(value, place)
        kind = type(value)
        if kind is float and not math.isfinite(value):
            return {_FLOAT: repr(value)}
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.encode(item, (*place, i)) for i, item in enumerate(value)]
        if kind is tuple:
            return {_TUPLE: [self.encode(item, (*place, i)) for i, item in enumerate(value)]}
        where = ".".join(map(str, place))
        raise TypeError(f"a checkpoint cannot hold {kind.__name__!r} (at {where}): only tensors and plain values")

    def _encode_mapping(self, value: Mapping[Any, Any], place: tuple[object, ...]) -> Any:
        items = [(key, self.encode(item, (*place, key))) for key, item in value.items()]
        if all(type(key) is str for key, _ in items) and not (len(items) == 1 and items[0][0].startswith("$")):
            return dict(items)
        return {_DICT: [[self.encode(key, (*place, "key")), item] for key, item in items]}

    def _add(self, value: Tensor, place: tuple[object, ...]) -> str:
        tensor = value.detach()
        storage = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        identity = storage if tensor.numel() else (id(value),)
        if identity not in self._names:
            stem = ".".join(map(str, place)) or "state"
            name, number = stem, 2
            while name in self.tensors:
                name, number = f"{stem}#{number}", number + 1
            self._names[identity] = name
            self.tensors[name] = self._whole(tensor)
        return self._names[identity]

    def _whole(self, tensor: Tensor) -> Tensor:
        """The tensor on the CPU, dense; a copy only where it would share a storage, which safetensors refuses."""
        dense = tensor.cpu().contiguous()
        storage = dense.untyped_storage()
        if dense.numel() * dense.element_size() != storage.nbytes() or storage.data_ptr() in self._storages:
            return dense.clone()
        self._storages.add(storage.data_ptr())
        return dense


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    special = _SPECIAL.get(next(iter(value), "")) if len(value) == 1 else None
    if special is not None:
        return special(next(iter(value.values())), tensors)
    return {key: _decode(item, tensors) for key, item in value.items()}


_SPECIAL: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    _TENSOR: lambda name, tensors: tensors[name],
    _FLOAT: lambda text, _: float(text),
    _TUPLE: lambda items, tensors: tuple(_decode(item, tensors) for item in items),
    _DICT: lambda pairs, tensors: {_decode(key, tensors): _decode(item, tensors) for key, item in pairs},
}
