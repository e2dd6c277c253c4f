"""`galley merge`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.cli.verb import Verb, emit, json_argument, run_argument, say

if TYPE_CHECKING:
    from galley.models.merging import MergeParity


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument("--output", metavar="DIR", type=Path, help="where to write (RUN/result/model)")
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.runs import find_run

    run = find_run(args.runs, args.run)
    if run.plan()["task"] == "control":
        raise GalleyError(
            "model-unsupported",
            f"{run.name} is an agent: it has no adapter",
            hint=f"galley export {run.name} --to onnx",
        )
    adapter = run.result / "adapter"
    if not adapter.is_dir():
        whole = (run.result / "model").is_dir()
        raise GalleyError(
            "run-unfinished",
            f"{run.name} has no adapter to merge",
            hint=f"{run.result / 'model'} is already a whole model" if whole else f"galley resume {run.name}",
        )
    output = args.output or run.result / "model"
    if output.exists():
        raise GalleyError("file-exists", f"{output} exists", hint="choose another --output, or remove it")
    from galley.models import merge

    parity = merge(adapter, output, on_note=say)
    emit(args, {"folder": str(output), "parity": parity.to_json()}, lambda: _text(output, parity))
    return 0


def _text(output: Path, parity: MergeParity) -> str:
    agreement = f"{parity.agreement:.1%} of the likeliest tokens agree with the adapter's"
    return f"{output}  ({parity.stored})\n{agreement}, logits differ by at most {parity.max_difference:.2g}"


VERB = Verb(
    help="write a run's adapter and its base as one model in hub layout, and prove that they agree",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=("galley merge chat-faq-001", "galley merge chat-faq-001 --output faq-model"),
)
