"""The handwritten digits that scikit-learn carries: 1,797 images of 8 x 8, read without importing it."""

from __future__ import annotations

from collections.abc import Iterator

from galley.base import GalleyError
from galley.data.examples import Labelled
from galley.data.sniff import open_text
from galley.data.source import Request, Row, Source, not_this_format

_SIDE = 8
_BRIGHTEST = 16


class Digits:
    """`data: package:digits`. Brightness is scaled to 0 to 1."""

    name = "digits"
    tasks = ("classify",)
    options: tuple[str, ...] = ()

    def detect(self, source: Source, task: str) -> float:
        """Certain for the file's own name."""
        return 1.0 if source.path is not None and source.path.name == "digits.csv.gz" else 0.0

    def rows(self, source: Source, request: Request) -> Iterator[Row]:
        """One digit a line: 64 pixels and the label."""
        import numpy as np

        if source.path is None or not self.detect(source, request.task):
            raise not_this_format(source.name, "the file of digits, package:digits")
        with open_text(source.path, "utf-8") as file:
            for number, line in enumerate(file, 1):
                values = [int(float(value)) for value in line.split(",")]
                if len(values) != _SIDE**2 + 1:
                    raise GalleyError(
                        "data-row", f"{source.name}, row {number}: expected 65 numbers, found {len(values)}"
                    )
                pixels = np.asarray(values[:-1], dtype=np.float32).reshape(1, _SIDE, _SIDE) / np.float32(_BRIGHTEST)
                yield Row(number, Labelled(pixels, str(values[-1])))


FORMAT = Digits()
