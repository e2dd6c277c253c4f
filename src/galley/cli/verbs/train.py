"""`galley train`."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from galley.base import GalleyError
from galley.cli.outcome import show_outcome, show_seeds
from galley.cli.verb import Verb, number, progress_arguments, read_recipe, recipe_arguments, runs_argument, watching


def _arguments(parser: ArgumentParser) -> None:
    recipe_arguments(parser)
    parser.add_argument(
        "--resume",
        metavar="auto|never|RUN",
        default="auto",
        help="continue an unfinished run of the same recipe (auto, the default), no run (never), or this one (RUN)",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=number(int, 1, 1024),
        default=1,
        help="train in several processes on this machine",
    )
    runs_argument(parser)
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    recipe = read_recipe(args)
    if args.processes > 1 and "RANK" not in os.environ:
        from galley.launch.local import launch_local

        return launch_local(sys.argv[1:], args.processes)
    from galley import job

    if recipe.seeds is not None:
        from galley.seeds import train_seeds

        if args.resume != "auto":
            raise GalleyError(
                "usage", "--resume does not go with seeds", hint="finished seeds are kept, others continue"
            )
        with watching(args) as observer:
            together = train_seeds(recipe, runs_root=args.runs, observer=observer)
        show_seeds(args, together)
        return 0
    with watching(args) as observer:
        run = job.train(recipe, runs_root=args.runs, resume=args.resume, observer=observer)
    if os.environ.get("RANK", "0") == "0":
        show_outcome(args, run)
    return 0


VERB = Verb(
    help="train, judge and save what a recipe asks for",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=("galley train faq.yaml", "galley train faq.yaml budget.epochs=1 optimizer.learning_rate=1e-4"),
)
