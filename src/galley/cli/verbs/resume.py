"""`galley resume`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from galley.cli.outcome import show_outcome
from galley.cli.verb import Verb, progress_arguments, run_argument, watching


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    from galley import job
    from galley.runs import find_run

    folder = find_run(args.runs, args.run)
    recipe = job.read_recipe(folder.path / "recipe.yaml", ())
    with watching(args) as observer:
        run = job.train(recipe, runs_root=folder.path.parent, resume=folder.name, observer=observer)
    show_outcome(args, run)
    return 0


VERB = Verb(
    help="continue an interrupted run as if it had never stopped",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=("galley resume chat-faq-001",),
)
