"""What the sides of control_vs_sb3.py share: arguments, one clock, one evaluator, one line of results."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Evaluate = Callable[[], float]
"""Mean return of the best actions."""
CONSECUTIVE = 3


def arguments() -> argparse.Namespace:
    """The command line of every side; threads and the processor are set before anything heavy is imported."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    parser.add_argument("--network", required=True, help="mlp:64x64:tanh; empty for the method's own")
    parser.add_argument("--steps", type=int, required=True, help="at most; schedules end with them")
    parser.add_argument("--target", type=float, help="three evaluations in a row reach it, and the side stops")
    parser.add_argument("--every", type=int, default=1000, help="environment steps between evaluations, for --target")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processor", type=int, help="pin to this one")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    if args.processor is not None:
        os.sched_setaffinity(0, {args.processor})
    return args


@dataclass
class Clock:
    """Time of learning alone; it stands still during evaluations.

    Args:
        args: of the command line.
        evaluate: plays with the policy as it is now.
        started: when the process began to import.
    """

    args: argparse.Namespace
    evaluate: Evaluate
    started: float
    seconds: float = 0.0
    processor_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    steps: int = 0
    updates_seconds: float = 0.0
    in_a_row: int = 0
    reached: bool = False
    _next: int = 0
    _since: tuple[float, float] = field(default=(0.0, 0.0))
    ready: float = 0.0

    def start(self) -> None:
        """Learning begins, or goes on."""
        if not self.ready:
            self.ready = time.perf_counter() - self.started
            self._next = self.args.every
        self._since = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Learning pauses."""
        self.seconds += time.perf_counter() - self._since[0]
        self.processor_seconds += time.process_time() - self._since[1]

    def due(self, steps: int) -> bool:
        """Whether an evaluation is due after so many steps."""
        self.steps = steps
        return self.args.target is not None and steps >= self._next

    def judge(self) -> bool:
        """Evaluate while the clock stands still.

        Returns:
            Whether the target was reached often enough.
        """
        self.stop()
        began = time.perf_counter()
        self._next = (self.steps // self.args.every + 1) * self.args.every
        self.in_a_row = self.in_a_row + 1 if self.evaluate() >= self.args.target else 0
        self.reached = self.in_a_row >= CONSECUTIVE
        self.evaluation_seconds += time.perf_counter() - began
        self.start()
        return self.reached

    def report(self) -> None:
        """Print the line that the benchmark reads."""
        result = {
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "steps": self.steps,
            "steps_per_second": self.steps / self.seconds,
            "reached": self.reached,
            "final_return": self.evaluate(),
            "start_seconds": self.ready,
            "evaluation_seconds": self.evaluation_seconds,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print("RESULT " + json.dumps(result), flush=True)


def evaluator(args: argparse.Namespace, player: Any) -> Evaluate:
    """Plays the same episodes for every side.

    Args:
        args: of the command line.
        player: chooses the actions; see `galley.methods.control.playing.Player`.
    """
    from galley.data.environments import EnvironmentSettings, open_environments
    from galley.methods.control.playing import evaluation_seed, play

    copies = open_environments(EnvironmentSettings(f"gym:{args.environment}", num_envs=args.episodes))

    def evaluate() -> float:
        played = play(copies, player, args.episodes, seed=evaluation_seed(args.seed))
        return sum(episode.ret for episode in played) / len(played)

    return evaluate
