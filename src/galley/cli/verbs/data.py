"""`galley data`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.cli.verb import Verb, color, emit, json_argument, width

if TYPE_CHECKING:
    from galley.recipe import DataSection, EvaluateSection


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="DATA|RECIPE", help="a file, glob, package or hub dataset, or a recipe")
    parser.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", default=[], help="e.g. data.rows=100 data.format=alpaca"
    )
    parser.add_argument("--task", default="chat", help="what the data is for: chat (the default), complete, classify")
    parser.add_argument("--model", help="count tokens, and render, with the tokenizer of this model")
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.data import describe, read, render

    task, section, evaluate, seed = _request(args)
    description = describe(read(section, task=task, evaluate=evaluate, seed=seed), model=args.model)
    emit(args, description.to_json(), lambda: render(description, width=width(), color=color()))
    return 0


def _request(args: Namespace) -> tuple[str, DataSection, EvaluateSection, int]:
    """What to read: as the recipe says, or the data itself with defaults."""
    from galley import job, methods
    from galley.recipe import load

    if args.source.endswith((".yaml", ".yml")):
        recipe = job.read_recipe(args.source, args.overrides)
        args.model = args.model or recipe.model
    else:
        if any(not override.startswith(("data", "evaluate", "seed")) for override in args.overrides):
            raise GalleyError("usage", "only data, evaluate and seed matter to data", hint="galley data --help")
        values = {"task": args.task, "model": args.model or "-", "data": args.source}
        recipe = load(values, args.overrides, methods=methods)
    return recipe.task, recipe.data, recipe.evaluate, recipe.seed


VERB = Verb(
    help="show what is read from data: rows, columns, lengths, duplicates, leaks, two rendered examples",
    group="prepare",
    arguments=_arguments,
    run=_run,
    examples=("galley data faq.csv", "galley data reasoning-gym:family_relationships --model smollm2-135m-instruct"),
)
