"""`galley env`."""

from __future__ import annotations

from argparse import Namespace

from galley.cli.verb import Verb, emit, json_argument, table


def _run(args: Namespace) -> int:
    from galley.base.diagnosis import environment

    facts = environment()
    emit(args, facts, lambda: table(("what", "version"), list(facts.items())))
    return 0


VERB = Verb(help="print versions for a bug report", group="about", arguments=json_argument, run=_run)
