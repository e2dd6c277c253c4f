"""Galley on the shared workload, through `galley.job` as the command line runs it.

Variants: `general` (any family), `fast` (hand-written step), `fast-prefix` (and common tokens computed once).
"""

from __future__ import annotations

import gc
import shutil
import time
from pathlib import Path

from common import StepClock, arguments, peak_bytes, report

from galley import job
from galley.base import SilentObserver


class Clock(SilentObserver):
    """Ticks at each step, as the peers' callbacks do."""

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.path = ""

    def advance(self, count: int = 1, **facts: float | str) -> None:
        if count and "tokens_per_second" in facts:
            self.clock.tick(0)

    def note(self, kind: str, message: str) -> None:
        if "path" in message:
            self.path = message


def main() -> None:
    gc.set_threshold(100_000, 50, 100)  # as the command line does
    started = time.perf_counter()
    args = arguments()
    clock = StepClock()
    out = Path(args.out)
    shutil.rmtree(out, ignore_errors=True)
    recipe = job.read_recipe(
        {
            "task": "chat",
            "model": args.model,
            "data": {"path": args.rows, "columns": {"prompt": "prompt", "completion": "completion"}},
            "budget": {"steps": args.steps},
            "evaluate": {"held_out": 0, "verdict": False},
            "optimizer": {"learning_rate": args.learning_rate, "schedule": "constant", "warmup": 0},
            "override": {
                "tuning": "lora",
                "rank": args.rank,
                "alpha": 2.0 * args.rank,
                "global_batch": args.batch,
                "threads": args.threads,
                "device": args.device,
                "fast_path": args.variant.startswith("fast"),
                "shared_prefix": args.variant == "fast-prefix",
            },
            "name": out.name,
            "seed": args.seed,
        }
    )
    observer = Clock(clock)
    run = job.train(recipe, runs_root=out.parent, resume="never", observer=observer)
    lines = [line for line in run.metrics() if "loss" in line]
    ends = [line["tokens"] for line in lines]
    clock.tokens = [b - a for a, b in zip([0, *ends], ends, strict=False)]
    whole = peak_bytes()
    # Peers stop after saving; Galley goes on to load and prove its result, whose peak is given apart.
    report(
        clock,
        peak_bytes=lines[-1]["memory_bytes"],
        whole_peak_bytes=whole,
        first_step_seconds=clock.ends[0] - started,
        path=observer.path,
    )


main()
