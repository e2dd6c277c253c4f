"""`galley plan`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from galley.cli.verb import Verb, color, emit, json_argument, read_recipe, recipe_arguments, starting, width


def _arguments(parser: ArgumentParser) -> None:
    recipe_arguments(parser)
    json_argument(parser)
    parser.add_argument("--why", metavar="KEY", help="the rule and the figures behind one decision or prediction")


def _run(args: Namespace) -> int:
    recipe = read_recipe(args)
    with starting():
        from galley import job
        from galley.plan import explain

        decided = job.plan(recipe)
    if args.why:
        from galley.plan.why import why

        print(why(decided, args.why), end="")
        return 0
    emit(args, decided.model_dump(mode="json"), lambda: explain(decided, width=width(), color=color()))
    return 0


VERB = Verb(
    help="show how a recipe would be trained, why, and at what cost",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=(
        "galley plan faq.yaml",
        "galley plan faq.yaml --why memory",
        "galley plan faq.yaml override.tuning=full hardware='8x h100-80g'",
    ),
)
