"""`galley data`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.cli.verb import Verb, color, emit, json_argument, say, width

if TYPE_CHECKING:
    from galley.data.describe import Description
    from galley.recipe import Recipe


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="DATA|RECIPE", help="a file, glob, package or hub dataset, or a recipe")
    parser.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", default=[], help="e.g. data.rows=100 task=classify"
    )
    parser.add_argument(
        "--tokens", action="store_true", help="count tokens with the model's tokenizer (a recipe's, or model=NAME)"
    )
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.data.describe import render
    from galley.data.sources import SCHEMES
    from galley.data.worlds import is_environment

    if is_environment(args.source) and args.source.partition(":")[0] not in SCHEMES:
        return _environment(args, args.source, {})
    recipe = _recipe(args)
    if recipe.task == "control":
        return _environment(args, recipe.data.path, recipe.data.options)
    description = _description(recipe, tokens=args.tokens)
    emit(args, description.to_json(), lambda: render(description, width=width(), color=color()))
    return 0


def _environment(args: Namespace, reference: str, options: dict[str, Any]) -> int:
    """What an environment shows and takes."""
    from galley.data.environments.describe import describe
    from galley.data.worlds import evaluation_world

    settings = evaluation_world(reference, options)
    assert settings is not None
    described = describe(settings)
    emit(args, asdict(described), lambda: "\n".join(described.lines()))
    return 0


def _recipe(args: Namespace) -> Recipe:
    """The recipe, or one that holds nothing but the data."""
    from galley import job

    if args.source.endswith((".yaml", ".yml")):
        return job.read_recipe(args.source, args.overrides)
    given = {override.partition("=")[0] for override in args.overrides}
    if args.tokens and "model" not in given:
        raise GalleyError("usage", "tokens are counted by a model's tokenizer", hint="add model=NAME, or name a recipe")
    return job.read_recipe({"task": "chat", "model": "none", "data": args.source}, args.overrides)


def _description(recipe: Recipe, *, tokens: bool) -> Description:
    from galley import data
    from galley.data.describe import describe

    dataset = data.read(recipe.data, task=recipe.task, evaluate=recipe.evaluate, seed=recipe.seed)
    if not tokens:
        return describe(dataset)
    from galley import job, methods, models
    from galley.data.encode import all_texts
    from galley.data.template import Template
    from galley.plan import Plan

    tokenizer = models.tokenizer_for(models.resolve(recipe.model), lambda: all_texts(dataset.train), on_note=say)
    decided = job.plan(recipe)
    assert isinstance(decided, Plan), "an agent has no tokens"
    limit = decided.batch.max_length_tokens
    kind = methods.registry.get(recipe.method.name or methods.default_for(recipe.task))
    method = kind(kind.Config.model_validate(recipe.method.options))
    samples = method.encode(dataset.train, methods.Encoding(tokenizer, limit, dataset.statistics.labels, say))
    template = Template(tokenizer) if recipe.task == "chat" else None
    return describe(dataset, template=template, report=samples.report, max_length=limit)


VERB = Verb(
    help="show what is read from data: rows, columns, lengths, duplicates, leaks, examples; or a world",
    group="prepare",
    arguments=_arguments,
    run=_run,
    examples=(
        "galley data faq.csv",
        "galley data faq.yaml --tokens",
        "galley data reviews.csv task=classify",
        "galley data gym:CartPole-v1",
    ),
)
