"""`galley export`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from galley.base import format_bytes
from galley.cli.verb import Verb, emit, json_argument, run_argument

if TYPE_CHECKING:
    from galley.export.exporting import ExportResult


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument("--to", metavar="FORM", required=True, help="onnx or torch-export")
    parser.add_argument("--out", metavar="FILE", type=Path, help="file to write (RUN/result/policy.onnx or .pt2)")
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.runs import find_run

    run = find_run(args.runs, args.run)
    from galley.export.exporting import export

    result = export(run, args.to, args.out)
    emit(args, result.to_json(), lambda: _text(result))
    return 0


def _text(result: ExportResult) -> str:
    parity = result.parity
    return (
        f"{result.path}  ({format_bytes(result.size_bytes)})\n"
        f"{parity.agreement:.1%} of the actions agree with the policy's, they differ by at most "
        f"{parity.max_difference:.2g}"
    )


VERB = Verb(
    help="write an agent's whole decision function as ONNX or torch.export, and prove that it acts the same",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=("galley export cartpole-001 --to onnx", "galley export cartpole-001 --to torch-export --out policy.pt2"),
)
