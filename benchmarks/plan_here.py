"""What the planner expects of the gallery's recipes on this machine, against what short trainings of them need.

    python benchmarks/plan_here.py [--recipe faq] [--steps 20] [--json] [--forget-calibration]

Each recipe is trained for a few steps in a process of its own, and ended there. Its cache has what `galley calibrate`
measured here, converted models and tokens, but no earlier training that would correct the prediction. Peak memory and
speed are the job's own metrics. Times mean something on a quiet machine only; memory does always.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from galley.base import format_bytes
from galley.base.cache import cache_folder

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
WARMUP_STEPS = 5
"""Compiling, first use of memory and of the products' code."""
_KEPT = ("models", "tokens", "read", "reasoning-gym")
_TRAIN = """
import sys
from pathlib import Path
from galley import job
source, root, steps = sys.argv[1:]
cuts = ["epochs=null", "tokens=null", "minutes=null", "until={}", f"steps={steps}"]
changes = [*(f"budget.{cut}" for cut in cuts), f"evaluate.every={max(1, int(steps) // 2)}", "evaluate.verdict=false"]
asked = job.read_recipe(source, changes)
job.train(asked, runs_root=Path(root))
"""


def measure(source: Path, steps: int, *, calibrated: bool) -> dict[str, Any]:
    """Train a recipe in a process of its own, and set its plan against its metrics.

    Args:
        source: the recipe.
        steps: of the training.
        calibrated: keep what was measured on this machine.

    Returns:
        Bytes, and seconds of a step: predicted (likely), measured, and their ratio; None where nothing is expected.
    """
    with tempfile.TemporaryDirectory() as folder:
        cache, runs = Path(folder) / "cache", Path(folder) / "runs"
        cache.mkdir()
        for kept in (*_KEPT, *(("calibration",) if calibrated else ())):
            (cache_folder() / kept).mkdir(parents=True, exist_ok=True)
            (cache / kept).symlink_to(cache_folder() / kept)
        log = Path(folder) / "log"
        with log.open("w") as stream:
            command = [sys.executable, "-c", _TRAIN, str(source), str(runs), str(steps)]
            environment = os.environ | {"GALLEY_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
            job = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)
            try:
                while len(_lines(runs)) < steps and job.poll() is None:
                    time.sleep(0.5)
            finally:
                job.kill()
                job.wait()
        metrics = _lines(runs)
        if len(metrics) < steps:
            raise SystemExit(f"{source.stem}: {log.read_text(encoding='utf-8').strip()[-2000:]}")
        plan = json.loads(next(runs.glob("*/plan.json")).read_text(encoding="utf-8"))
    return {"recipe": source.stem, **_memory(plan, metrics), **_time(plan, metrics)}


def _lines(runs: Path) -> list[dict[str, Any]]:
    """The lines of steps so far; one that is being written is left out."""
    found = []
    for path in runs.glob("*/metrics.jsonl"):
        for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if text.endswith("\n") and "loss" in (line := json.loads(text)):
                found.append(line)
    return found


def _memory(plan: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    predicted = plan["predicted"]["memory_bytes"][1]
    measured = max(line["memory_bytes"] for line in metrics)
    return {
        "memory_predicted": predicted,
        "memory_measured": measured,
        "memory_ratio": round(predicted / measured, 3),
        "memory_parts": plan["predicted"]["memory_parts"],
    }


def _time(plan: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a step with the mean number of tokens: the speeds are per token."""
    unit = "tokens_per_second" if any("tokens_per_second" in line for line in metrics) else "rows_per_second"
    late = metrics[WARMUP_STEPS:] or metrics
    speed = statistics.median(line[unit] for line in late)
    each = plan["tokens"] / plan["rows"] * plan["batch"]["global_batch_rows"]
    likely = plan["predicted"]["tokens_per_second"][1] if unit == "tokens_per_second" else 0.0
    return {
        "step_seconds_predicted": each / likely if likely else None,
        "step_seconds_measured": each / speed,
        "step_ratio": round(speed / likely, 3) if likely else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    parser.add_argument("--recipe", action="append", choices=names, help="one of the gallery's; all when left out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one object a recipe")
    parser.add_argument("--forget-calibration", action="store_true", help="plan as if nothing had been measured")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'':10}{'memory':>12}{'measured':>12}{'ratio':>8}{'step':>10}{'measured':>10}{'ratio':>8}")
    for name in arguments.recipe or names:
        found = measure(RECIPES / f"{name}.yaml", arguments.steps, calibrated=not arguments.forget_calibration)
        if arguments.json:
            print(json.dumps(found), flush=True)
            continue
        bytes_of = (format_bytes(found["memory_predicted"]), format_bytes(found["memory_measured"]))
        cells = [f"{name:10}", *(f"{text:>12}" for text in bytes_of), f"{found['memory_ratio']:8.2f}"]
        for key, wide in (("step_seconds_predicted", 10), ("step_seconds_measured", 10), ("step_ratio", 8)):
            value = found[key]
            cells.append(f"{'-':>{wide}}" if value is None else f"{value:{wide}.3g}")
        print("".join(cells), flush=True)


if __name__ == "__main__":
    main()
