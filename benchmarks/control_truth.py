"""What agents learn, against published results: same steps, several seeds, ours beside theirs.

    python benchmarks/control_truth.py PUBLISHED.csv [--seeds 5] [--only sac-pendulum] [--runs DIR] [--json]

Columns of the CSV: algo, env_id, mean_reward, std_reward, n_timesteps, eval_episodes, n_seeds. A row is trained by
`recipes/control/ALGO-ENV.yaml` where that exists, and with the method's default settings elsewhere. Each seed trains
the row's number of steps; its result (the best of its evaluations) then plays 100 episodes by which nothing was
chosen. A row passes when the mean over seeds is at least the published mean minus two of its standard errors. Rows of
LunarLander-v2 are compared with v3, which Gymnasium has in its place: the same world with a corrected wind.

`mountaincar-must-fail` is a control: PPO with the default settings of Stable-Baselines3, which normalise nothing,
does not solve MountainCar-v0, and should not.
Interrupted, the same command continues.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from galley.methods import control

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes" / "control"
ENVIRONMENTS = {
    "CartPole-v1": "cartpole",
    "LunarLander-v2": "lunarlander",
    "LunarLander-v3": "lunarlander",
    "MountainCar-v0": "mountaincar",
    "MountainCarContinuous-v0": "mountaincar-continuous",
    "Pendulum-v1": "pendulum",
    "Acrobot-v1": "acrobot",
    "BipedalWalker-v3": "bipedalwalker",
    "CartPoleNoVel-v1": "cartpole-novel",
    "MountainCarContinuousNoVel-v0": "mountaincar-continuous-novel",
    "PendulumNoVel-v1": "pendulum-novel",
}
ALGORITHMS = {"ppo_lstm": "recurrent-ppo", "ppo_mask": "maskable-ppo"}
DEFAULTS = {"qrdqn": "{name: dqn, quantiles: 50}"}
"""Where the recipe's word for an algorithm is more than its name."""
SUCCESSORS = {"LunarLander-v2": "LunarLander-v3", "LunarLanderContinuous-v2": "LunarLanderContinuous-v3"}
SEEDS = {"cartpole": 10, "pendulum": 10}
"""At least so many for the quick ones."""
PLAIN = (
    "{name: ppo, num_envs: 1, num_steps: 2048, batch_size: 64, num_epochs: 10, learning_rate: 0.0003, anneal: none, "
    "normalise_observations: false, normalise_rewards: false}"
)
MUST_FAIL = ("ppo-default", "MountainCar-v0", 100_000, -190.0)


@dataclass(frozen=True)
class Row:
    """A published result."""

    recipe: str
    algorithm: str
    environment: str
    mean: float
    std: float
    steps: int
    episodes: int
    in_training: bool
    """The published number is the return in training, not in an evaluation."""

    @property
    def least(self) -> float:
        """Two standard errors below the mean."""
        return self.mean - 2 * self.std / math.sqrt(max(1, self.episodes))


@dataclass(frozen=True)
class Outcome:
    """What ours came to."""

    recipe: str
    steps: int
    published: float
    published_std: float
    least: float
    scores: list[float]
    mean: float
    iqm: float
    seconds: float
    passed: bool


def main() -> None:
    args = arguments()
    rows = list(published(args.csv))
    outcomes = []
    for row in rows:
        if args.only and not any(word in row.recipe for word in args.only):
            continue
        if row.steps > args.most_steps:
            continue
        outcome = measure(row, args)
        outcomes.append(outcome)
        if not args.json:
            print(line_of(outcome), flush=True)
    if not args.only or "mountaincar-must-fail" in args.only:
        must_fail(args)
    if args.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        print(f"{sum(o.passed for o in outcomes)} of {len(outcomes)} rows reach the published result")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--seeds", type=int, default=5, help="at least; quick worlds get ten")
    parser.add_argument("--only", nargs="*", help="recipes whose name contains one of these words")
    parser.add_argument("--most-steps", type=int, default=2_000_000, help="longer rows are left out")
    parser.add_argument("--runs", type=Path, default=Path("runs-truth"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def published(path: Path) -> list[Row]:
    """Rows for which there is a recipe."""
    found = []
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            algorithm, _, source = row["algo"].partition("(")
            method = ALGORITHMS.get(algorithm, algorithm)
            name = f"{method}-{ENVIRONMENTS.get(row['env_id'], row['env_id'])}"
            if source and not source.startswith("cleanrl"):
                continue
            if method not in DEFAULTS and method not in control.registry.names():
                print(f"left out: {row['algo']} on {row['env_id']}: no such method here", file=sys.stderr)
                continue
            count = row["eval_episodes"] or row["n_seeds"]
            numbers = float(row["mean_reward"]), float(row["std_reward"]), int(row["n_timesteps"]), int(count)
            found.append(Row(name, row["algo"], row["env_id"], *numbers, in_training=bool(source)))
    return found


def measure(row: Row, args: argparse.Namespace) -> Outcome:
    """Train the seeds, or continue them, and read what they came to."""
    seeds = max(args.seeds, SEEDS.get(row.recipe.partition("-")[2], 0))
    name = f"truth-{row.recipe}-{row.steps}".replace("/", "-")
    started = time.monotonic()
    train(recipe_of(row, args.runs), name, row.steps, seeds, args.runs)
    facts = json.loads((args.runs / name / "seeds.json").read_text(encoding="utf-8"))
    scores = facts["verdict"]["scores"]
    iqm = facts["verdict"]["iqm"]
    if row.in_training:
        scores = [last_return(args.runs / run) for run in facts["runs"]]
        iqm = float("nan")
    mean = sum(scores) / len(scores)
    seconds = time.monotonic() - started
    return Outcome(row.recipe, row.steps, row.mean, row.std, row.least, scores, mean, iqm, seconds, mean >= row.least)


def recipe_of(row: Row, runs: Path) -> Path:
    """The tuned recipe, or one with nothing but defaults."""
    path = RECIPES / f"{row.recipe}.yaml"
    if path.exists():
        return path
    runs.mkdir(parents=True, exist_ok=True)
    method = row.recipe.removesuffix(f"-{ENVIRONMENTS.get(row.environment, row.environment)}")
    environment = SUCCESSORS.get(row.environment, row.environment)
    written = runs / f"default-{row.recipe.replace('/', '-')}.yaml"
    written.write_text(
        f"task: control\ndata: gym:{environment}\nmethod: {DEFAULTS.get(method, method)}\n", encoding="utf-8"
    )
    return written


def train(recipe: Path, name: str, steps: int, seeds: int, runs: Path, *changes: str) -> None:
    """`galley train` with seeds; its own words are shown when it fails."""
    words = [f"budget.steps={steps}", f"seeds={seeds}", f"name={name}", "checkpoint.keep=1", *changes]
    command = [sys.executable, "-m", "galley", "train", str(recipe), *words, "--runs", str(runs), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr}")


def last_return(run: Path) -> float:
    """Mean return of the last 100 episodes in training."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return float([line["return"] for line in lines if "return" in line][-1])


def must_fail(args: argparse.Namespace) -> None:
    """Plain PPO on MountainCar-v0: no reward ever shows the way, so a success would mean that something leaks.

    Galley's own defaults normalise observations and rewards, with which random actions do reach the goal now and then.
    """
    name, environment, steps, bound = MUST_FAIL
    args.runs.mkdir(parents=True, exist_ok=True)
    recipe = args.runs / "mountaincar-must-fail.yaml"
    recipe.write_text(f"task: control\ndata: gym:{environment}\nmethod: {PLAIN}\n", encoding="utf-8")
    train(recipe, f"truth-{name}", steps, args.seeds, args.runs)
    facts = json.loads((args.runs / f"truth-{name}" / "seeds.json").read_text(encoding="utf-8"))
    mean = facts["verdict"]["mean"]
    word = "fails, as it must" if mean <= bound else "SUCCEEDS, which it must not"
    print(f"control: PPO that normalises nothing on {environment} for {steps:,} steps: {mean:.1f}: {word}", flush=True)


def line_of(outcome: Outcome) -> str:
    scores = " ".join(f"{score:.1f}" for score in sorted(outcome.scores))
    word = "reached" if outcome.passed else "MISSED"
    return (
        f"{outcome.recipe:<32} {outcome.steps:>9,} steps  ours {outcome.mean:8.2f}  published {outcome.published:8.2f} "
        f"(at least {outcome.least:.2f})  {word}  [{scores}]  {outcome.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
