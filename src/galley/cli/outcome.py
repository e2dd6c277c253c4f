"""What a verb that trained or judged says at the end."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.cli.verb import color, emit, width

if TYPE_CHECKING:
    from galley.runs import RunFolder
    from galley.seeds import SeedsResult


def show_outcome(args: Namespace, run: RunFolder) -> None:
    """Print where the run is, its verdict, and what to do next."""
    verdict: dict[str, Any] | None = None
    if (run.result / "verdict.json").exists():
        verdict = run.read_result("verdict.json")
    facts = {"run": run.name, "folder": str(run.path), "status": run.status(), "verdict": verdict}
    emit(args, facts, lambda: _text(run, verdict))


def show_seeds(args: Namespace, together: SeedsResult) -> None:
    """Print the verdicts of several seeds together, and where they are."""
    result = together.aggregate
    facts = {
        "folder": str(together.folder),
        "runs": [run.name for run in together.runs],
        "verdict": result.to_json() if result else None,
    }

    def text() -> str:
        lines = []
        if result is not None:
            low, high = result.iqm_interval
            lines += [
                f"{len(result.scores)} seeds: {', '.join(f'{score:.4g}' for score in result.scores)}",
                f"mean                {result.mean:.4g}  "
                f"(95 % interval {result.mean_interval[0]:.4g} to {result.mean_interval[1]:.4g})",
                f"interquartile mean  {result.iqm:.4g}  (95 % interval {low:.4g} to {high:.4g})",
                f"base                {result.base:.4g}",
                "",
            ]
        return "\n".join([*lines, f"picture  {together.folder / 'seeds.png'}", f"runs     {together.runs[0].path} ..."])

    emit(args, facts, text)


def _where(run: RunFolder) -> str:
    """The option that finds the run, where it is not in the usual folder."""
    root = run.path.parent
    return "" if root.resolve() == Path("runs").resolve() else f" --runs {shlex.quote(str(root))}"


def _text(run: RunFolder, verdict: dict[str, Any] | None) -> str:
    lines = []
    if verdict is not None:
        from galley.evaluate import Verdict, render

        lines += [render(Verdict.model_validate(verdict), width=width(), color=color()), ""]
    lines.append(f"run     {run.path}")
    lines.append(f"result  {run.result}")
    if run.plan().get("task") == "control":
        lines.append(f"watch   galley watch {run.name}{_where(run)}")
    elif run.plan().get("task") != "classify":
        lines.append(f"chat    galley chat {run.name}{_where(run)}")
    return "\n".join(lines)
