"""`galley init`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from galley.base import GalleyError
from galley.cli.verb import Verb


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="TASK or DATA",
        nargs="*",
        default=[],
        help="guessed when left out: DATA is the only table in this folder, or an example",
    )
    parser.add_argument("--model", help="the model to start from")
    parser.add_argument("--output", metavar="FILE", type=Path, help="recipe to write (named after the data)")


def _run(args: Namespace) -> int:
    from galley.recipe.first import TASKS, first_recipe

    words = list(args.words)
    task = words.pop(0) if words and words[0] in TASKS else None
    data = words.pop(0) if words else None
    if words:
        raise GalleyError("usage", f"what is {words[0]!r}?", hint=f"galley init [{'|'.join(TASKS)}] [DATA]")
    name, text = first_recipe(task, data, args.model)
    path = args.output or Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise GalleyError("file-exists", f"{path} exists", hint="choose another --output") from error
    print(f"{path} is written\n\n{text}\nnext: galley plan {path}, then galley train {path}")
    return 0


VERB = Verb(
    help="write a first recipe of three lines, guessing from a data file",
    group="prepare",
    arguments=_arguments,
    run=_run,
    examples=("galley init", "galley init faq.csv", "galley init classify reviews.csv"),
)
