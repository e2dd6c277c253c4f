"""Arrays of inputs and labels in one `.npz` file: `x` and `y`, `images` and `labels`, and their like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.examples import Labelled
from galley.data.source import Request, Row, Source, damage_is_an_error, not_this_format
from galley.data.sources.files import ARRAY_SUFFIXES

if TYPE_CHECKING:
    import numpy as np

_NAMES = (("x", "y"), ("images", "labels"), ("inputs", "targets"), ("data", "target"), ("x_train", "y_train"))


class Arrays:
    """Row i of the inputs belongs to row i of the labels. Whole bytes (0 to 255) become numbers from 0 to 1."""

    name = "arrays"
    tasks = ("classify",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain for `.npz` files."""
        return 1.0 if source.suffix in ARRAY_SUFFIXES else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One labelled array a row; images become [channels, height, width]."""
        inputs, labels = _load(source, request)
        for number, (array, label) in enumerate(zip(channels_first(inputs), labels.tolist(), strict=True), 1):
            yield Row(number, Labelled(to_unit(array), str(label)))


def channels_first(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[N, H, W] and [N, H, W, C] as [N, C, H, W]; anything else is left as it is."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3, 4) and images.shape[1] not in (1, 3, 4):
        return images.transpose(0, 3, 1, 2)
    return images


def to_unit(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Float32; bytes are divided by 255, other numbers are kept."""
    import numpy as np

    scale = 255.0 if array.dtype == np.uint8 else 1.0
    return np.ascontiguousarray(array, dtype=np.float32) / np.float32(scale)


def _load(source: Source, request: Request) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    import numpy as np

    if source.path is None or source.suffix not in ARRAY_SUFFIXES:
        raise not_this_format(source.name, "a .npz file of arrays")
    hint = "write it with numpy.savez('data.npz', x=x, y=y), without objects"
    with (
        damage_is_an_error(source.name, "a file of arrays of numbers", hint=hint),
        np.load(source.path, allow_pickle=False) as file,
    ):
        arrays = {name: file[name] for name in file.files}
    names = _names(source, request, arrays)
    inputs, labels = arrays[names[0]], arrays[names[1]]
    request.used_columns |= {"input": names[0], "label": names[1]}
    unused = [name for name in arrays if name not in names]
    if unused:
        request.notes.append(f"{source.name}: arrays that are not used: {', '.join(unused)}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or inputs.ndim < 2 or len(inputs) != len(labels) or inputs.dtype.kind not in "uifb":
        raise GalleyError(
            "data-row",
            f"{source.name}: expected {names[0]} as numbers [rows, ...] and {names[1]} as one label a row, "
            f"found {inputs.dtype} {list(inputs.shape)} and {labels.dtype} {list(labels.shape)}",
        )
    return inputs, labels


def _names(source: Source, request: Request, arrays: dict[str, Any]) -> tuple[str, str]:
    chosen = request.columns
    pairs = [(chosen.get("input", x), chosen.get("label", y)) for x, y in _NAMES]
    found = next((pair for pair in pairs if pair[0] in arrays and pair[1] in arrays), None)
    if found is None or chosen.keys() - {"input", "label"}:
        raise GalleyError(
            "data-columns",
            f"{source.name}: inputs and labels are not recognised among the arrays {', '.join(arrays) or '(none)'}",
            hint="say which: `columns: {input: x, label: y}`",
        )
    return found


FORMAT = Arrays()
