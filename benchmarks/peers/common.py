"""What every side of the SFT benchmark shares; needs only the standard library, so that it runs in any environment.

Each side is a process of its own that is given the same model folder and the same rows, trains the same number of
steps of the same number of rows, saves an adapter, and prints one line of JSON made by `report`.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path


def arguments() -> argparse.Namespace:
    """The command line that the driver uses for every side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="hub-layout folder of the base model")
    parser.add_argument("--rows", required=True, help="JSONL with prompt and completion, both text")
    parser.add_argument("--out", required=True, help="folder for the adapter")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the adapter's first weights and of the order of rows")
    return parser.parse_args()


def read_rows(path: str) -> list[dict[str, object]]:
    """The rows of the workload."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


class StepClock:
    """Collects when each step ended. The first two steps warm up and are left out on every side."""

    warmup = 2

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.tokens: list[int] = []

    def tick(self, tokens: int) -> None:
        """One step with this many real tokens is over."""
        self.ends.append(time.perf_counter())
        self.tokens.append(tokens)

    def tokens_per_second(self) -> float:
        """Real tokens of the steps after the warm-up, by the time that they took."""
        skip = self.warmup
        return sum(self.tokens[skip:]) / (self.ends[-1] - self.ends[skip - 1])


def peak_bytes() -> int:
    """Highest resident set of this program (getrusage would count the parent's as well)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(clock: StepClock, **facts: object) -> None:
    """Print this side's figures as the last line of its output."""
    peak = peak_bytes()
    line = {"tokens_per_second": clock.tokens_per_second(), "steps": len(clock.ends), "peak_bytes": peak, **facts}
    print("RESULT " + json.dumps(line), flush=True)
