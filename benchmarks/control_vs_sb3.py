"""Learning to act on a CPU: Galley against Stable-Baselines3, interleaved, in this environment.

    python benchmarks/control_vs_sb3.py [--algorithms ppo dqn sac] [--only cartpole] [--seeds 5] [--threads 1] [--json]

Every side is a process of its own, pinned to one processor where there is one thread. Two kinds of work:

- to a target: wall-clock from the start of learning to three evaluations in a row (ten episodes each, every 1,000
  environment steps) whose mean return is at least 475;
- so many steps: environment steps a second, and the mean return of twenty episodes after them.

Evaluations, imports and the making of environments and networks are left out of the time and stated apart. Sides play
their evaluations in the same environments with the same first observations. Seconds of processor time stand beside
wall-clock: on a machine that others use, they are steadier.

With CLEANRL in the environment (see peers/control_cleanrl.py) CleanRL's ppo.py learns CartPole beside, as it stands.

Settings of the peer are those of rl-baselines3-zoo (its hyperparams/*.yml); `equal` gives Galley the same ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Side:
    """Who learns, and with what."""

    name: str
    script: str
    network: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What is compared.

    Args:
        target: mean return to reach; None runs all steps.
        episodes: of an evaluation.
        sides: the peer is the last.
    """

    name: str
    algorithm: str
    environment: str
    steps: int
    sides: tuple[Side, ...]
    target: float | None = None
    episodes: int = 20


def galley(name: str, network: str = "", **settings: Any) -> Side:
    return Side(f"galley {name}", "control_galley.py", network, settings)


def sb3(network: str, **settings: Any) -> Side:
    return Side("sb3 zoo", "control_sb3.py", network, settings)


SMALL, LARGE = "mlp:64x64:tanh", "mlp:256x256:relu"
WORKS = (
    Work(
        "ppo-cartpole",
        "ppo",
        "CartPole-v1",
        100_000,
        (
            galley("defaults"),
            galley(
                "equal",
                SMALL,
                **{"num_envs": 8, "num_steps": 32, "batch_size": 256, "num_epochs": 20, "gamma": 0.98},
                **{"gae_lambda": 0.8, "learning_rate": 1e-3, "anneal": "both"},
                **{"normalise_observations": False, "normalise_rewards": False, "entropy_coefficient": 0.0},
            ),
            sb3(
                SMALL,
                **{"n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8},
                **{"ent_coef": 0.0, "learning_rate": "lin_0.001", "clip_range": "lin_0.2"},
            ),
        ),
        target=475,
        episodes=10,
    ),
    Work(
        "ppo-lunarlander",
        "ppo",
        "LunarLander-v3",
        50_000,
        (
            galley(
                "equal",
                SMALL,
                **{"num_envs": 16, "num_steps": 1024, "batch_size": 64, "num_epochs": 4, "gamma": 0.999},
                **{"gae_lambda": 0.98, "learning_rate": 3e-4, "anneal": "none"},
                **{"entropy_coefficient": 0.01, "normalise_observations": False, "normalise_rewards": False},
            ),
            sb3(
                SMALL,
                **{"n_envs": 16, "n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gamma": 0.999},
                **{"gae_lambda": 0.98, "ent_coef": 0.01},
            ),
        ),
    ),
    Work(
        "ppo-halfcheetah",
        "ppo",
        "HalfCheetah-v5",
        10_000,
        (
            galley(
                "equal",
                LARGE,
                **{"num_envs": 1, "num_steps": 512, "batch_size": 64, "num_epochs": 20, "gamma": 0.98},
                **{"gae_lambda": 0.92, "learning_rate": 2.0633e-05, "anneal": "none"},
                **{"clip_range": 0.1, "entropy_coefficient": 0.000401762, "value_coefficient": 0.58096},
                **{"max_grad_norm": 0.8, "normalise_observations": True, "normalise_rewards": True},
                **{"initial_log_std": -2.0},
            ),
            sb3(
                LARGE,
                **{"normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 64, "n_epochs": 20, "gamma": 0.98},
                **{"gae_lambda": 0.92, "learning_rate": 2.0633e-05, "clip_range": 0.1, "ent_coef": 0.000401762},
                **{"vf_coef": 0.58096, "max_grad_norm": 0.8, "policy_kwargs": {"log_std_init": -2.0}},
            ),
        ),
    ),
    Work(
        "dqn-cartpole",
        "dqn",
        "CartPole-v1",
        50_000,
        (
            galley(
                "equal",
                LARGE,
                **{"num_envs": 1, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000},
                **{"learning_starts": 1000, "gamma": 0.99, "target_update_interval": 10, "train_frequency": 256},
                **{"gradient_steps": 128, "exploration_fraction": 0.16, "final_exploration": 0.04, "double": False},
            ),
            sb3(
                LARGE,
                **{"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000},
                **{"gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128},
                **{"exploration_fraction": 0.16, "exploration_final_eps": 0.04},
            ),
        ),
    ),
    Work(
        "sac-pendulum",
        "sac",
        "Pendulum-v1",
        20_000,
        (
            galley("equal", LARGE, **{"num_envs": 1, "learning_rate": 1e-3}),
            galley("equal, bfloat16", LARGE, **{"num_envs": 1, "learning_rate": 1e-3, "matrix_products": "bfloat16"}),
            sb3(LARGE, learning_rate=1e-3),
        ),
    ),
)


def main() -> None:
    args = arguments()
    everything = {}
    for work in WORKS:
        wanted = not args.only or any(word in work.name for word in args.only)
        if work.algorithm in args.algorithms and wanted:
            everything[work.name] = measure(work, args)
            if not args.json:
                show(work, everything[work.name])
    if args.json:
        print(json.dumps(everything, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="*", default=["ppo", "dqn", "sac"], choices=["ppo", "dqn", "sac"])
    parser.add_argument("--only", nargs="*", help="works whose name contains one of these words")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="instead of each work's own; not where there is a target")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processor", type=int, default=0, help="that one thread is pinned to; -1 does not pin")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(work: Work, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Every seed of every side, in turn."""
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides_of(work)}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for side in sides_of(work):
            result = run_side(work, side, seed, args)
            if result is not None:
                found[side.name].append(result)
                print(f"{work.name} seed {seed} {side.name}: {summary(work, result)}", file=sys.stderr, flush=True)
    return found


def sides_of(work: Work) -> tuple[Side, ...]:
    """With CleanRL where it is at hand and knows the work."""
    if "CLEANRL" in os.environ and work.name == "ppo-cartpole":
        return (Side("cleanrl defaults", "control_cleanrl.py", ""), *work.sides)
    return work.sides


def run_side(work: Work, side: Side, seed: int, args: argparse.Namespace) -> dict[str, Any] | None:
    """One process; None when it fails."""
    steps = args.steps if args.steps and work.target is None else work.steps
    command = [sys.executable, str(PEERS / side.script), "--algorithm", work.algorithm]
    command += ["--environment", work.environment, "--settings", json.dumps(side.settings), "--network", side.network]
    command += ["--steps", str(steps), "--episodes", str(work.episodes), "--seed", str(seed)]
    command += ["--threads", str(args.threads)]
    if work.target is not None:
        command += ["--target", str(work.target)]
    if args.threads == 1 and args.processor >= 0:
        command += ["--processor", str(args.processor)]
    threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads}, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    print(f"{side.name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
    return None


def summary(work: Work, result: dict[str, Any]) -> str:
    """One run in words."""
    how = "" if work.target is None else (" to the target" if result["reached"] else ", target NOT reached")
    return (
        f"{result['seconds']:.2f} s, {result['steps']:,} steps{how}, {result['steps_per_second']:,.0f} steps/s, "
        f"return {result['final_return']:.0f}"
    )


def show(work: Work, results: dict[str, list[dict[str, Any]]]) -> None:
    """One line a side; ratios say how many times faster than the last one it is."""
    peer = results[work.sides[-1].name]
    columns = ("seconds", "ratio", "cpu s", "ratio", "steps/s", "ratio", "steps", "reached", "return", "+-")
    columns += ("start s", "evaluating s", "peak MiB")
    kind = "all steps" if work.target is None else f"to {work.target:g}"
    print(f"\n{work.name} ({kind}; medians)\n{'side':18}" + "".join(f"{column:>13}" for column in columns))
    for name, runs in results.items():
        if runs:
            print(f"{name:18}" + "".join(f"{value:>13}" for value in line(runs, peer or runs)), flush=True)


def line(runs: list[dict[str, Any]], peer: list[dict[str, Any]]) -> list[str]:
    """A side's figures as text. Runs that never reached the target count with all their time."""

    def median(of: list[dict[str, Any]], key: str) -> float:
        return statistics.median(run[key] for run in of)

    seconds, processor, speed = (median(runs, k) for k in ("seconds", "processor_seconds", "steps_per_second"))
    returns = [run["final_return"] for run in runs]
    return [
        f"{seconds:.3f}",
        f"{median(peer, 'seconds') / seconds:.2f}",
        f"{processor:.3f}",
        f"{median(peer, 'processor_seconds') / processor:.2f}",
        f"{speed:.0f}",
        f"{speed / median(peer, 'steps_per_second'):.2f}",
        f"{median(runs, 'steps'):.0f}",
        f"{sum(run['reached'] for run in runs)}/{len(runs)}",
        f"{statistics.fmean(returns):.1f}",
        f"{statistics.stdev(returns) if len(returns) > 1 else float('nan'):.1f}",
        f"{median(runs, 'start_seconds'):.2f}",
        f"{median(runs, 'evaluation_seconds'):.2f}",
        f"{median(runs, 'peak_bytes') / 2**20:.0f}",
    ]


if __name__ == "__main__":
    main()
