"""ONNX: one file for ONNX Runtime and most other engines."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from galley.base import GalleyError
from galley.export.base import Runner

if TYPE_CHECKING:
    from galley.export.whole import Whole


class Onnx:
    """ONNX by torch.onnx, run by ONNX Runtime on one CPU thread."""

    suffix = ".onnx"

    def write(self, whole: Whole, path: Path) -> None:
        """One file with a dynamic batch axis; see `Form`."""
        _need()
        inputs = tuple(torch.from_numpy(rows) for rows in whole.examples(3, 0).values())
        batch = torch.export.Dim("batch", min=1)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                whole,
                inputs,
                path,
                input_names=whole.names,
                output_names=["action"],
                dynamo=True,
                dynamic_shapes=(tuple({0: batch} for _ in inputs),),
                external_data=False,
                verbose=False,
            )

    def open(self, path: Path) -> Runner:
        """A session of ONNX Runtime."""
        _need()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(["action"], dict(inputs))[0]


def _need() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise GalleyError(
            "package-missing", f"ONNX needs {', '.join(missing)}", hint="pip install 'galley-train[export]'"
        )


FORM = Onnx()
