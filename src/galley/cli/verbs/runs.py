"""`galley runs`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from galley.base import format_bytes
from galley.cli.verb import Verb, emit, json_argument, runs_argument, table

if TYPE_CHECKING:
    from galley.runs import RunFolder


def _arguments(parser: ArgumentParser) -> None:
    runs_argument(parser)
    json_argument(parser)


def _run(args: Namespace) -> int:
    from galley.runs import list_runs

    facts = [_facts(run) for run in list_runs(args.runs)]
    emit(args, facts, lambda: _text(facts, str(args.runs)))
    return 0


def _facts(run: RunFolder) -> dict[str, Any]:
    metrics = run.newest_metrics()
    verdict = run.read_result("verdict.json") if (run.result / "verdict.json").exists() else {}
    return {
        "name": run.name,
        "status": run.status(),
        "step": metrics.get("step", 0),
        "steps": run.plan().get("steps", 0),
        "loss": metrics.get("loss"),
        "held_out_loss": metrics.get("held_out_loss"),
        "tokens_per_second": metrics.get("tokens_per_second"),
        "memory_bytes": metrics.get("memory_bytes"),
        "predicted_tokens_per_second": _likely(run, "tokens_per_second"),
        "predicted_memory_bytes": _likely(run, "memory_bytes"),
        "better": verdict.get("better"),
        "worse": verdict.get("worse"),
        "base": verdict.get("base"),
        "tuned": verdict.get("tuned"),
        "changed": run.metrics_path.stat().st_mtime if run.metrics_path.exists() else run.path.stat().st_mtime,
    }


def _text(facts: list[dict[str, Any]], root: str) -> str:
    if not facts:
        return f"no runs in {root}; galley train RECIPE makes one"
    rows = [
        (
            run["name"],
            run["status"],
            f"{run['step']}/{run['steps']}",
            *("-" if run[name] is None else f"{run[name]:.4g}" for name in ("loss", "held_out_loss")),
            _against(run, "tokens_per_second", lambda speed: f"{speed:,.0f}"),
            _against(run, "memory_bytes", format_bytes),
            _verdict(run),
            datetime.fromtimestamp(run["changed"]).strftime("%Y-%m-%d %H:%M"),
        )
        for run in facts
    ]
    return table(("name", "status", "steps", "loss", "held out", "tokens/s", "memory", "verdict", "when"), rows)


def _likely(run: RunFolder, name: str) -> float | None:
    """What the plan expected; None where it expected nothing."""
    expected = run.plan().get("predicted", {}).get(name, 0)  # low, likely and high; for agents one number
    return (expected[1] if isinstance(expected, list) else expected) or None


def _against(run: dict[str, Any], name: str, form: Callable[[float], str]) -> str:
    """Measured, and how far from the plan."""
    measured, predicted = run[name], run[f"predicted_{name}"]
    if not measured:
        return "-"
    return f"{form(measured)} ({measured / predicted - 1:+.0%})" if predicted else form(measured)


def _verdict(run: dict[str, Any]) -> str:
    if run["better"] is None:
        return "-"
    word = "better" if run["better"] else "worse" if run["worse"] else "not better"
    return f"{word}, {run['base']:.3g} to {run['tuned']:.3g}"


VERB = Verb(
    help="list runs: status, steps, loss, speed and memory against the plan, verdict",
    group="use",
    arguments=_arguments,
    run=_run,
)
