"""A recipe as a dict, trained with several learning rates and compared by the lowest held-out loss.

python examples/compare_rates.py
"""

import sys
from pathlib import Path

import galley

RECIPES = Path(__file__).parent.parent / "recipes"

RECIPE = {
    "task": "classify",
    "model": str(RECIPES / "digits_net.py") + ":Net",
    "data": "package:digits",
    "budget": {"epochs": 5},
    "evaluate": {"verdict": False},
}


def main(*overrides: str) -> dict[float, float]:
    lowest = {}
    for rate in (1e-4, 1e-3, 1e-2):
        run = galley.train(RECIPE, f"optimizer.learning_rate={rate}", *overrides, resume="never")
        lowest[rate] = min(line["held_out_loss"] for line in run.metrics if "held_out_loss" in line)
        print(f"{rate:g}: {lowest[rate]:.4f}  ({run.path})")
    print(f"best: {min(lowest, key=lambda rate: lowest[rate]):g}")
    return lowest


if __name__ == "__main__":
    main(*sys.argv[1:])
