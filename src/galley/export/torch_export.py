"""torch.export (.pt2): for PyTorch without Galley, from Python or compiled ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from galley.export.base import Array, Runner

if TYPE_CHECKING:
    from galley.export.whole import Whole


class TorchExport:
    """A program of torch.export."""

    suffix = ".pt2"

    def write(self, whole: Whole, path: Path) -> None:
        """One file with a dynamic batch axis; see `Form`."""
        inputs = tuple(torch.from_numpy(rows) for rows in whole.examples(3, 0).values())
        batch = torch.export.Dim("batch", min=1)
        shapes = (tuple({0: batch} for _ in inputs),)
        with torch.no_grad():
            torch.export.save(torch.export.export(whole, inputs, dynamic_shapes=shapes), path)

    def open(self, path: Path) -> Runner:
        """The program, loaded anew."""
        module = torch.export.load(path).module()

        def run(inputs: Mapping[str, Array]) -> Array:
            with torch.no_grad():
                actions: Array = module(*(torch.from_numpy(rows) for rows in inputs.values())).numpy()
            return actions

        return run


FORM = TorchExport()
