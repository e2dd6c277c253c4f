"""A picture of an agent's training: return in training and in evaluations over environment steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from galley.runs.folder import RunFolder
from galley.runs.plot import ACCENT, GREEN, INK, series, tidy


def return_plot(run: RunFolder) -> Path | None:
    """Draw result/returns.png: the return of the last episodes in training, and of evaluations with its interval.

    Args:
        run: the run, with metrics.

    Returns:
        The picture, or None when no episode has ended yet.

    Raises:
        GalleyError: `run-damaged` when metrics.jsonl cannot be read.
    """
    records = list(run.metrics())
    training, evaluated = series(records, "return"), series(records, "evaluation_return")
    if not training[0] and not evaluated[0]:
        return None
    spread = dict(zip(*series(records, "evaluation_return_interval"), strict=True))
    path = run.result / "returns.png"
    path.parent.mkdir(exist_ok=True)
    _draw(run.name, training, evaluated, [spread.get(step, 0.0) for step in evaluated[0]], path)
    return path


def _draw(
    title: str,
    training: tuple[list[int], list[float]],
    evaluated: tuple[list[int], list[float]],
    spread: Sequence[float],
    path: Path,
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps, values = training
    if steps:
        axes.plot(steps, values, color=ACCENT, linewidth=1.4, label="training, mean of 100 episodes")
    if evaluated[0]:
        places, means = evaluated
        low = [mean - half for mean, half in zip(means, spread, strict=True)]
        high = [mean + half for mean, half in zip(means, spread, strict=True)]
        axes.fill_between(places, low, high, color=GREEN, alpha=0.15, linewidth=0)
        axes.plot(places, means, color=GREEN, linewidth=1.2, marker="o", markersize=4, label="evaluation, best actions")
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold")
    axes.set_ylabel("return", color=INK)
    axes.set_xlabel("environment steps", color=INK)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1e6:g}M" if step >= 1e6 else f"{step / 1e3:g}k")
    axes.legend(frameon=False, loc="lower right", labelcolor=INK)
    tidy(axes)
    figure.savefig(path, metadata={"Software": None})
