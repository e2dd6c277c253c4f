"""How long the planner searches: two large models on 16,384 GPUs, a mid-size one, a laptop, and an impossible job.

    python benchmarks/planner_search.py [--repeats 5] [--plans]

One process; medians of the repeats. The first search of a process, which imports what it needs, is printed beside.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from galley.base import GalleyError, format_bytes
from galley.plan import Hardware, parse
from galley.plan.architecture import Architecture
from galley.plan.published import known
from galley.plan.search import Pins, SearchResult, search
from galley.plan.workload import Workload

LLAMA_405B = known("llama-3.1-405b")
DEEPSEEK_671B = known("deepseek-v3")
LLAMA_70B = known("llama-3-70b")
SMOLLM_135M = known("smollm2-135m")
LAPTOP = Hardware(
    name="laptop", device="cpu", memory_bytes=16 * 2**30, cores=4, tflops={"fp32": 0.3, "bf16": 0.6}, memory_gbps=40
)

JOBS: dict[str, tuple[Architecture, Hardware, Workload, Pins]] = {
    "405B, 16,384 GPUs": (
        LLAMA_405B,
        parse("2048 nodes x 8x h100-80g"),
        Workload(sequence=8192, global_batch=2048),
        Pins(tuning="full"),
    ),
    "405B, 131,072 tokens": (
        LLAMA_405B,
        parse("2048 nodes x 8x h100-80g"),
        Workload(sequence=131_072, global_batch=128),
        Pins(tuning="full"),
    ),
    "671B MoE, 16,384 GPUs": (
        DEEPSEEK_671B,
        parse("2048 nodes x 8x h100-80g"),
        Workload(sequence=4096, global_batch=16_384),
        Pins(tuning="full"),
    ),
    "70B, 8 GPUs": (LLAMA_70B, parse("8x h100-80g"), Workload(sequence=4096, global_batch=64), Pins()),
    "135M LoRA, laptop": (SMOLLM_135M, LAPTOP, Workload(sequence=512, global_batch=16, tuning="lora"), Pins()),
    "405B full, 8 GPUs": (
        LLAMA_405B,
        parse("8x h100-80g"),
        Workload(sequence=8192, global_batch=64),
        Pins(tuning="full"),
    ),
}


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plans", action="store_true", help="print the plans as well")
    args = parser.parse_args()
    print(f"{'job':24}{'first':>9}{'median':>9}{'estimates':>11}")
    for name, job in JOBS.items():
        seconds, outcome = [], ""
        for _ in range(args.repeats + 1):
            start = time.perf_counter()
            result, outcome = _search(*job)
            seconds.append(time.perf_counter() - start)
        estimates = result.estimates if result else 0
        median = statistics.median(seconds[1:])
        print(f"{name:24}{seconds[0]:>8.3f}s{median:>8.3f}s{estimates:>11,}")
        if args.plans:
            print(outcome)
    assert "torch" not in sys.modules, "the planner must not import torch"


def _search(
    architecture: Architecture, hardware: Hardware, workload: Workload, pins: Pins
) -> tuple[SearchResult | None, str]:
    try:
        result = search(architecture, hardware, workload, pins=pins)
    except GalleyError as error:
        return None, f"    {error}\n    hint: {error.hint}"
    best = result.best
    lines = [f"    {best}: {best.time.seconds:.3g} s a step, {format_bytes(best.bytes)}, MFU {best.time.mfu:.0%}"]
    lines += [f"      {loser}" for loser in result.runners_up]
    return result, "\n".join(lines)


if __name__ == "__main__":
    main()
