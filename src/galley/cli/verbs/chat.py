"""`galley chat`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.cli.verb import Verb, number, runs_argument, say

if TYPE_CHECKING:
    from galley.generate import ChatSession


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="RUN|MODEL", help="a run, or any model that a recipe can name")
    parser.add_argument("question", metavar="QUESTION", nargs="?", help="ask this once, and print the answer")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    heat, length, seed = number(float, 0, 100), number(int, 1, 1_000_000), number(int, 0, 2**63 - 1)
    parser.add_argument("--temperature", type=heat, default=0.0, help="0, the default, takes the likeliest token")
    parser.add_argument("--max-new-tokens", type=length, default=256, help="longest answer, in tokens (256)")
    parser.add_argument("--seed", type=seed, default=0, help="of sampling, when the temperature is above 0")
    runs_argument(parser)


def _run(args: Namespace) -> int:
    session = _session(args)
    if args.question is not None:
        _answer(session, args.question)
        return 0
    interactive = sys.stdin.isatty()
    if interactive:
        print("empty line or Ctrl-D ends, /new starts over", file=sys.stderr)
    code = 0
    while (question := _read(interactive)) is not None:
        if question == "/new":
            session = session.restarted()
            continue
        try:
            _answer(session, question)
        except GalleyError as error:  # of this question; the conversation goes on with the next one
            print(error.render(), file=sys.stderr, flush=True)
            code = 0 if interactive else int(error.exit)
    return code


def _session(args: Namespace) -> ChatSession:
    from galley.generate import Sampling, open_chat

    settings = Sampling(max_new_tokens=args.max_new_tokens, temperature=args.temperature, seed=args.seed)
    return open_chat(args.model, runs_root=args.runs, settings=settings, system=args.system, on_note=say)


def _read(interactive: bool) -> str | None:
    """The next question; None at the end of the input."""
    try:
        line = input("> ") if interactive else sys.stdin.readline()
    except EOFError:
        return None
    except UnicodeDecodeError as error:
        raise GalleyError("usage", f"a question is not UTF-8 text ({error})", hint="save it as UTF-8") from error
    return line.strip() or None


def _answer(session: ChatSession, question: str) -> None:
    if any("\ud800" <= sign <= "\udfff" for sign in question):  # how Python passes on bytes that are no text
        raise GalleyError("usage", "the question is not UTF-8 text", hint="type it, or save it as UTF-8")
    for piece in session.ask(question):
        print(piece, end="", flush=True)
    print()


VERB = Verb(
    help="talk to a run or to any model, with the template that it was trained with",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=("galley chat chat-faq-001", "galley chat smollm2-135m-instruct 'Who are you?'"),
)
