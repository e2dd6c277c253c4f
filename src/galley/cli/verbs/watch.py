"""`galley watch`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from galley.cli.verb import Verb, emit, json_argument, number, run_argument


def _arguments(parser: ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument("--episodes", type=number(int, 1, 10_000), default=1, help="how many are played (1)")
    parser.add_argument("--out", metavar="FILE", type=Path, help=".gif or .mp4 (watch.gif in the run's result)")
    parser.add_argument(
        "--save", metavar="FILE", type=Path, help="draw nothing, but keep what was done: .npz, .jsonl or .parquet"
    )
    parser.add_argument("--seed", type=number(int, 0, 2**31 - 1), help="of the episodes (those of the verdict)")
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.evaluate.watching import keep_episodes, watch
    from galley.runs import find_run

    run = find_run(args.runs, args.run)
    if args.save is not None:
        steps = keep_episodes(run, args.save, episodes=args.episodes, seed=args.seed)
        facts = {"file": str(args.save), "episodes": args.episodes, "steps": steps}
        emit(args, facts, lambda: f"{args.episodes} episodes, {steps:,} steps  {args.save}")
        return 0
    seen = watch(run, episodes=args.episodes, seed=args.seed, out=args.out)
    returns = ", ".join(f"{ret:g}" for ret in seen.returns)
    emit(
        args,
        {"picture": str(seen.picture), "returns": seen.returns, "frames": seen.frames},
        lambda: f"return   {returns}\npicture  {seen.picture} ({seen.frames:,} frames)",
    )
    return 0


VERB = Verb(
    help="let a trained agent play, and record a picture of it or keep its episodes",
    group="use",
    arguments=_arguments,
    run=_run,
    examples=("galley watch control-CartPole-v1-001", "galley watch cartpole --episodes 50 --save episodes.npz"),
)
