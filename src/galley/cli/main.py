"""The `galley` command: find the verb, run it, and turn what goes wrong into two lines and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from galley.base import Exit, GalleyError, Registry
from galley.cli.verb import Verb

VERBS: Registry[Verb] = Registry("galley.cli.verbs", attribute="VERB", kind="verb")

_GROUPS = {"train": "Train", "use": "Use what was trained", "prepare": "Prepare", "about": "About Galley"}


class Parser(argparse.ArgumentParser):
    """argparse, with its complaints as GalleyError."""

    def error(self, message: str) -> NoReturn:
        """A command line that is not understood."""
        raise GalleyError("usage", message, hint=f"{self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    # pydantic would otherwise read the metadata of every installed package to look for plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # importing torch and transformers makes millions of lasting objects; looking for garbage among them takes a second
    gc.set_threshold(100_000, 50, 100)
    try:
        code = _run([word for word in words if word != "--debug"])
        sys.stdout.flush()
    except SystemExit as error:  # argparse, after --help
        code = error.code if isinstance(error.code, int) else int(Exit.FAILED)
    except BrokenPipeError:
        # the reader has seen enough; Python would complain once more while closing stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.FAILED
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            import traceback

            traceback.print_exc()
        known = as_galley_error(error)
        print(known.render(), file=sys.stderr)
        code = known.exit
    if argv is None:
        gc.freeze()  # the process ends: nothing is gained by looking through everything once more
    return int(code)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return Exit.DONE
    name, rest = ("version", []) if words[0] in ("-V", "--version") else (words[0], words[1:])
    verb = _verb(name)
    args = parser(name, verb).parse_intermixed_args(rest)
    return verb.run(args)


def _verb(name: str) -> Verb:
    if name.startswith("-"):
        raise GalleyError("usage", f"the verb comes first, before {name}", hint="galley --help")
    if name.endswith((".yaml", ".yml")):
        raise GalleyError("usage", f"{name} is not a verb", hint=f"galley train {name}")
    return VERBS.get(name)


def parser(name: str, verb: Verb) -> argparse.ArgumentParser:
    """The parser of one verb."""
    epilog = "\n".join(["examples:", *(f"  {line}" for line in verb.examples)]) if verb.examples else None
    made = Parser(
        prog=f"galley {name}",
        description=verb.help,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.arguments(made)
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return made


def overview() -> str:
    """The text of `galley --help`."""
    verbs = {name: VERBS.get(name) for name in VERBS.names()}
    lines = ["Galley trains models: one recipe in, a trained and proven model out.", "", "usage: galley VERB ..."]
    for group, title in _GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<10}{verb.help}" for name, verb in verbs.items() if verb.group == group]
    lines += ["", "galley VERB --help tells more. A first recipe: galley init chat faq.csv"]
    return "\n".join(lines)


def as_galley_error(error: BaseException) -> GalleyError:
    """What to tell about any exception."""
    if isinstance(error, GalleyError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return GalleyError("interrupted", "interrupted")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" for {error.filename}" if error.filename else ""
        return GalleyError("disk-full", f"no space left{place}", hint="free some space and run the same command again")
    if isinstance(error, MemoryError):
        return GalleyError("out-of-memory", "memory ran out", hint="budget: {memory: 4GiB} makes the plan smaller")
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""  # noqa: PTH119
    what = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {what[0] if what else '(no message)'}{place}"
    return GalleyError("internal", message, hint="run it again with --debug, and report it with `galley env`")


if __name__ == "__main__":
    sys.exit(main())
