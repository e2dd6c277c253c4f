"""`galley plan`."""

from __future__ import annotations

import errno
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.cli.verb import Verb, color, emit, json_argument, read_recipe, recipe_arguments, starting, width

if TYPE_CHECKING:
    from galley.plan.control import ControlPlan

TOOLS = ("deepspeed", "accelerate", "torchtitan", "megatron", "llamafactory", "axolotl", "trl")
"""As in `galley.plan.emit`, which is only imported when it is used."""


def _arguments(parser: ArgumentParser) -> None:
    recipe_arguments(parser)
    json_argument(parser)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--why", metavar="KEY", help="the rule and the figures behind one decision or prediction")
    kinds.add_argument("--emit", metavar="TOOL", choices=TOOLS, help=f"write it for a tool: {', '.join(TOOLS)}")
    kinds.add_argument("--picture", metavar="FILE", type=Path, help="draw it: FILE ends in .svg or .png")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="with --emit: where its files go, instead of stdout")


def _run(args: Namespace) -> int:
    if args.picture:
        from galley.plan.picture import check_picture

        check_picture(args.picture)
    recipe = read_recipe(args)
    with starting():
        from galley import job
        from galley.plan import Plan, explain

        decided = job.plan(recipe)
    if not isinstance(decided, Plan):
        return _control(args, decided)
    if args.why:
        from galley.plan.why import why

        print(why(decided, args.why), end="")
        return 0
    if args.picture:
        from galley.plan.picture import picture

        picture(decided, args.picture)
        emit(args, {"picture": str(args.picture)}, lambda: f"wrote {args.picture}")
        return 0
    if args.emit:
        from galley.plan.emit import emit as written_for

        architecture = None
        if decided.method != "classify":
            from galley import models
            from galley.plan.families import architecture_of

            architecture = architecture_of(models.resolve(recipe.model))
        files = written_for(decided, args.emit, architecture=architecture, data=recipe.data.path)
        lines = _kept(files, args.out)
        emit(args, files, lambda: lines)
        return 0
    emit(args, decided.model_dump(mode="json"), lambda: explain(decided, width=width(), color=color()))
    return 0


def _control(args: Namespace, decided: ControlPlan) -> int:
    """The page of an agent's plan; no other tool takes one."""
    from galley.plan.control_page import explain_control

    if args.emit or args.why or args.picture:
        raise GalleyError("usage", "--why, --emit and --picture are for plans of models, and this one is of an agent")
    emit(args, decided.model_dump(mode="json"), lambda: explain_control(decided, width=width(), color=color()))
    return 0


def _kept(files: dict[str, str], folder: Path | None) -> str:
    """Write the files; without a folder they are shown one after the other."""
    if folder is None:
        return "\n".join(f"# --- {name}\n{text}" for name, text in files.items())
    for name in files:
        if (folder / name).exists():
            raise GalleyError("file-exists", f"{folder / name} exists", hint="name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise GalleyError("usage", f"{folder} cannot be written to: {error.strerror}", hint="another --out") from None
    return "\n".join(f"wrote {folder / name}" for name in files)


VERB = Verb(
    help="show how a recipe would be trained, why, and at what cost",
    group="train",
    arguments=_arguments,
    run=_run,
    examples=(
        "galley plan faq.yaml",
        "galley plan faq.yaml --why memory",
        "galley plan faq.yaml override.tuning=full hardware='8x h100-80g'",
        "galley plan faq.yaml --picture plan.svg",
        "galley plan faq.yaml --emit trl --out configs",
    ),
)
