"""`galley train`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from galley.base import GalleyError
from galley.cli.outcome import show_outcome, show_seeds
from galley.cli.verb import Verb, progress_arguments, read_recipe, recipe_arguments, runs_argument, watching


def _arguments(parser: ArgumentParser) -> None:
    recipe_arguments(parser)
    parser.add_argument(
        "--resume",
        metavar="auto|never|RUN",
        default="auto",
        help="continue an unfinished run of the same recipe (auto, the default), no run (never), or this one (RUN)",
    )
    runs_argument(parser)
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    recipe = read_recipe(args)
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
    show_outcome(args, run)
    return 0


VERB = Verb(
    help="train, judge and save what a recipe asks for",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=("galley train faq.yaml", "galley train faq.yaml budget.epochs=1 optimizer.learning_rate=1e-4"),
)
