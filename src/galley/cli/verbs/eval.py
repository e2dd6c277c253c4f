"""`galley eval`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from galley.base import GalleyError
from galley.cli.verb import Verb, color, emit, progress_arguments, run_argument, watching, width


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument("--rows", type=int, metavar="N", help="held-out rows to answer (as in the recipe)")
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    from galley.runs import find_run

    folder = find_run(args.runs, args.run)
    if args.rows is not None and args.rows < 1:
        raise GalleyError("usage", f"--rows {args.rows} is too few", hint="galley eval --help")
    if folder.plan()["task"] == "control":
        raise GalleyError(
            "model-unsupported",
            f"{folder.name} is an agent: it was judged by episodes when it was trained, there are no held-out rows",
            hint=f"galley watch {folder.name} --episodes 100",
        )
    from galley.evaluate import judge, render

    with watching(args) as observer:
        verdict = judge(folder, observer=observer, rows=args.rows)
    if args.rows is not None:
        print(f"not stored: the verdict of {folder.name} stays what it was", file=sys.stderr)
    emit(args, verdict.model_dump(mode="json"), lambda: render(verdict, width=width(), color=color()))
    return 0


VERB = Verb(
    help="judge a finished run again: base against tuned model on held-out rows",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=("galley eval chat-faq-001 --rows 500",),
)
