"""`galley version`."""

from __future__ import annotations

from argparse import Namespace

from galley import __version__
from galley.cli.verb import Verb, emit, json_argument


def _run(args: Namespace) -> int:
    emit(args, {"version": __version__}, lambda: f"galley {__version__}")
    return 0


VERB = Verb(help="print the version", group="about", arguments=json_argument, run=_run)
