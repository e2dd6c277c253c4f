"""`galley import`."""  # noqa: N999  (the name of the file is the name of the verb)

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from galley.cli.verb import Verb, emit, json_argument, runs_argument


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY.zip", type=Path, help="what model.save() of Stable-Baselines3 wrote")
    parser.add_argument("--name", metavar="NAME", required=True, help="name of the run that is made")
    parser.add_argument(
        "--environment", metavar="REF", default="", help="where it was trained, e.g. gym:CartPole-v1: checked, played"
    )
    parser.add_argument(
        "--normalisation", metavar="FILE", type=Path, help="saved VecNormalize (vecnormalize.pkl beside the zip)"
    )
    runs_argument(parser)
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.importing import import_policy

    run = import_policy(
        args.policy,
        args.name,
        runs_root=args.runs,
        environment=args.environment,
        normalisation=args.normalisation,
    )
    emit(args, {"name": run.name, "folder": str(run.path)}, lambda: str(run.path))
    return 0


VERB = Verb(
    help="make a finished run of a policy that Stable-Baselines3 trained",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=(
        "galley import ppo_cartpole.zip --name cartpole-sb3",
        "galley import ppo_cartpole.zip --name cartpole-sb3 --environment gym:CartPole-v1",
    ),
)
