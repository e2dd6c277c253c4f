"""The seam of exports: a form writes a module and runs what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from galley.export.whole import Whole

Array = np.ndarray[Any, Any]
Runner = Callable[[Mapping[str, Array]], Array]
"""From the inputs, by name and with a batch axis, to the actions."""


class Form(Protocol):
    """One form of export. A file `export/NAME.py` defines `FORM`."""

    suffix: str
    """Of its files, with the dot."""

    def write(self, whole: Whole, path: Path) -> None:
        """Write the decision function with a dynamic batch axis.

        Raises:
            GalleyError: `package-missing`, `model-unsupported` when the form cannot hold it.
        """

    def open(self, path: Path) -> Runner:
        """What was written, as a function."""
