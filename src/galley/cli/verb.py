"""What a verb of the command line is, and the arguments that several verbs share."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from galley.base.finite import finite

if TYPE_CHECKING:
    from galley.base import Observer
    from galley.recipe import Recipe

T = TypeVar("T", int, float)
Group = Literal["train", "use", "prepare", "about"]


@dataclass(frozen=True)
class Verb:
    """One verb, e.g. `galley plan`. A file `cli/verbs/NAME.py` defines `VERB`, and that is all there is to it.

    Args:
        help: one line in `galley --help`.
        group: its place there.
        arguments: adds its arguments to the parser.
        run: does it and returns the exit code.
        examples: complete command lines for its help.
    """

    help: str
    group: Group
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    examples: tuple[str, ...] = ()


@contextmanager
def starting() -> Iterator[None]:
    """Look for no garbage meanwhile: what a start imports stays, and looking through it takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def recipe_arguments(parser: ArgumentParser) -> None:
    """RECIPE and overrides."""
    parser.add_argument("recipe", metavar="RECIPE", help="recipe file (YAML)")
    parser.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", default=[], help="changes to it, e.g. budget.epochs=1"
    )


def read_recipe(args: Namespace) -> Recipe:
    """The recipe that the arguments name."""
    with starting():
        from galley import methods
        from galley.recipe import load

        return load(args.recipe, args.overrides, methods=methods)


def run_argument(parser: ArgumentParser) -> None:
    """RUN, and where runs are."""
    parser.add_argument("run", metavar="RUN", help="name or folder of a run")
    runs_argument(parser)


def runs_argument(parser: ArgumentParser) -> None:
    """Where runs are."""
    parser.add_argument("--runs", metavar="DIR", type=Path, default=Path("runs"), help="folder of all runs (./runs)")


def json_argument(parser: ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print facts as JSON")


def progress_arguments(parser: ArgumentParser) -> None:
    """`--json` and `--quiet` for verbs that take long."""
    json_argument(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


@contextmanager
def watching(args: Namespace) -> Iterator[Observer]:
    """Shows progress on stderr as the arguments ask, and leaves a clean terminal behind whatever happens."""
    from galley.base.console import console

    watcher = console(sys.stderr, as_json=args.json, quiet=args.quiet)
    try:
        yield watcher
    finally:
        watcher.close()


def number(kind: type[T], least: float, most: float) -> Callable[[str], T]:
    """The type of a numeric argument, for argparse.

    Args:
        kind: int or float.
        least: the smallest value that is allowed.
        most: the largest one.
    """
    words = f"a {'whole ' if kind is int else ''}number from {least:,} to {most:,}"

    def parse(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not allowed; expected {words}") from None
        if not least <= value <= most:  # true of no NaN
            raise ArgumentTypeError(f"{text} is not allowed; expected {words}")
        return value

    return parse


def say(kind: str, message: str) -> None:
    """A note on stderr, for verbs without progress."""
    print(f"{kind}: {message}", file=sys.stderr)


def emit(args: Namespace, facts: Any, text: Callable[[], str]) -> None:
    """Print facts to stdout: as JSON when asked, else as the text.

    Args:
        args: parsed arguments, with `json`.
        facts: plain values.
        text: makes the text; only called when it is shown.
    """
    print(json.dumps(finite(facts), ensure_ascii=False, indent=2, default=str) if args.json else text())


def width() -> int:
    """Columns to write in: of the terminal, at most 120; 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def color() -> bool:
    """Whether stdout shows colour (https://no-color.org is respected)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns in plain text, as wide as they must be; full-width characters count twice."""
    lines = [header, *rows]
    widths = [max(_columns(line[number]) for line in lines) for number in range(len(header))]
    return "\n".join(
        "  ".join(cell + " " * (size - _columns(cell)) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _columns(text: str) -> int:
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
