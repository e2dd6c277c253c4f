"""How long `galley` takes from Enter to the prompt, as whole processes: help, a mistake in a recipe, and every plan.

    python benchmarks/startup.py --trl /path/to/bin/trl --llamafactory /path/to/bin/llamafactory-cli

Commands take turns, so that all sides meet the same machine. `pydantic` is the part that no change here can save: a
Python process that defines and uses one pydantic model. Before the first round each command runs once, for its
bytecode and for what it keeps about models. Under `chrt -f 50` a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
MISTAKE = "task: chat\nmodel: smollm2-135m-instruct\ndata: faq.csv\nepohcs: 3\n"
PYDANTIC = "from pydantic import BaseModel\nclass One(BaseModel):\n    x: int = 1\nOne(x=1)"


def commands(arguments: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    """Every command by its name in the table."""
    galley = str(Path(sys.executable).with_name("galley"))
    wrong = folder / "wrong.yaml"
    wrong.write_text(MISTAKE)
    found = {
        "python": [sys.executable, "-c", "pass"],
        "pydantic": [sys.executable, "-c", PYDANTIC],
        "galley --help": [galley, "--help"],
        "galley plan (a mistake)": [galley, "plan", str(wrong)],
    }
    found |= {f"galley plan {path.name}": [galley, "plan", str(path)] for path in sorted(RECIPES.glob("*.yaml"))}
    if arguments.trl:
        found["trl --help"] = [arguments.trl, "--help"]
    if arguments.llamafactory:
        found["llamafactory-cli version"] = [arguments.llamafactory, "version"]
    return found


def seconds(command: list[str]) -> float:
    """Wall-clock time of one process."""
    # Bytecode is written as it is for every user, whatever this shell says.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"HF_HUB_OFFLINE": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", metavar="PATH", help="the command of an environment with trl")
    parser.add_argument("--llamafactory", metavar="PATH", help="the command of an environment with llamafactory")
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = commands(arguments, Path(folder))
        for command in sides.values():
            seconds(command)
        took: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.repeats):
            for name, command in sides.items():
                took[name].append(seconds(command))
    print(f"{'':28}  minimum  median   (seconds, of {arguments.repeats})")
    for name, all_seconds in took.items():
        print(f"{name:28}  {min(all_seconds):7.3f}  {statistics.median(all_seconds):6.3f}")


if __name__ == "__main__":
    main()
