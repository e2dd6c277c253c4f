"""`galley extend`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from galley.cli.outcome import show_outcome
from galley.cli.verb import Verb, progress_arguments, run_argument, watching


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument(
        "overrides", metavar="budget.KEY=VALUE", nargs="+", help="the new budget; +VALUE adds to the old one"
    )
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    from galley import job
    from galley.runs import find_run

    folder = find_run(args.runs, args.run)
    with watching(args) as observer:
        run = job.extend(folder, args.overrides, observer=observer)
    show_outcome(args, run)
    return 0


VERB = Verb(
    help="train a finished run for longer",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=("galley extend chat-faq-001 budget.epochs=+1",),
)
