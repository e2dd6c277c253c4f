"""`galley schema`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from galley.cli.verb import Verb


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--keys", action="store_true", help="a readable list of keys instead of JSON Schema")


def _run(args: Namespace) -> int:
    from galley import methods
    from galley.recipe import json_schema, key_lines

    print(
        "\n".join(key_lines(methods)) if args.keys else json.dumps(json_schema(methods), indent=2, ensure_ascii=False)
    )
    return 0


VERB = Verb(
    help="print the JSON Schema of recipes, or every key with what it takes",
    group="prepare",
    arguments=_arguments,
    run=_run,
    examples=("galley schema --keys", "galley schema > recipe.schema.json"),
)
