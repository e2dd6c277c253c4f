"""A folder of class folders with images: `data/cat/1.png`, `data/dog/7.jpg`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.examples import Labelled
from galley.data.formats.arrays import channels_first, to_unit
from galley.data.source import Request, Row, Source, damage_is_an_error, not_this_format, typed_option
from galley.data.sources.files import IMAGE_SUFFIXES


class Images:
    """The name of the folder that an image lies in is its label.

    Images are read as grey when all of them are, else as colour; `options: {size: 64}` scales them to 64 x 64.
    """

    name = "images"
    tasks = ("classify",)
    options = ("size",)

    def detect(self, source: Source, task: str) -> float:
        """Certain for folders: the reader gives a folder as a source only when it holds images."""
        return 1.0 if source.path is not None and source.path.is_dir() else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One image a row, [channels, height, width], from 0 to 1."""
        if source.path is None or not self.detect(source, request.task):
            raise not_this_format(source.name, "a folder of images")
        size = typed_option(request.options, "size", int, None)
        paths = [path for path in sorted(source.path.rglob("*")) if path.suffix.lower()[1:] in IMAGE_SUFFIXES]
        loose = [path for path in paths if path.parent == source.path]
        if loose:
            raise GalleyError(
                "data-row",
                f"{loose[0]}: expected the image in a folder named like its class, found it in {source.path} itself",
                hint=f"for example {source.path / 'cat' / loose[0].name}",
            )
        opened = _modes(paths)
        mode = "L" if all(found in ("1", "L", "I;16") for found in opened) else "RGB"
        first: tuple[int, ...] | None = None
        for number, path in enumerate(paths, 1):
            array = _read(path, mode, size)
            first = first or array.shape
            if array.shape != first:
                raise GalleyError(
                    "data-row",
                    f"{path}: expected {first[1]} x {first[0]} pixels like the first image, "
                    f"found {array.shape[1]} x {array.shape[0]}",
                    hint="scale all to one size: `options: {size: 64}`",
                )
            yield Row(number, Labelled(to_unit(channels_first(array[None])[0]), path.parent.name))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise GalleyError("package-missing", "reading images needs Pillow", hint="pip install pillow") from error
    return Image


def _modes(paths: list[Path]) -> set[str]:
    image_class, modes = _pillow(), set()
    for path in paths:
        # The header only: pixels are decoded when they are asked for.
        with damage_is_an_error(path, "an image"), image_class.open(path) as image:
            modes.add(image.mode)
    return modes


def _read(path: Path, mode: str, size: int | None) -> Any:
    import numpy as np

    with damage_is_an_error(path, "an image"), _pillow().open(path) as image:
        converted = image.convert(mode)
        return np.asarray(converted if size is None else converted.resize((size, size)), dtype=np.uint8)


FORMAT = Images()
