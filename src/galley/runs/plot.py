"""A picture of a training: loss and learning rate over the steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from galley.runs.folder import RunFolder

INK, SOFT, ACCENT, GREEN = "#1f2937", "#9ca3af", "#2563eb", "#059669"


def loss_plot(run: RunFolder) -> Path | None:
    """Draw result/loss.png: the training loss light and smoothed, the held-out loss as dots, the learning rate below.

    Args:
        run: the run, with metrics.

    Returns:
        The picture, or None when nothing was measured yet.

    Raises:
        GalleyError: `run-damaged` when metrics.jsonl cannot be read.
    """
    records = list(run.metrics())
    loss = series(records, "loss")
    held_out = series(records, "held_out_loss")
    if not loss[0] and not held_out[0]:
        return None
    path = run.result / "loss.png"
    path.parent.mkdir(exist_ok=True)
    _draw(run.name, loss, held_out, series(records, "learning_rate"), path)
    return path


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Means over a centred window, after single spikes were taken out by medians of five.

    Args:
        values: the series.
        window: how many neighbours count, itself included; 1 changes nothing.
    """
    if window <= 1:
        return list(values)
    calm = [statistics.median(_around(values, i, 2)) for i in range(len(values))]
    return [statistics.fmean(_around(calm, i, window // 2)) for i in range(len(values))]


def _around(values: Sequence[float], index: int, reach: int) -> Sequence[float]:
    """Neighbours on both sides: near the ends fewer, lest a falling curve be pulled, but never one value alone."""
    reach = max(min(reach, index, len(values) - 1 - index), reach // 3)
    return values[max(0, index - reach) : index + reach + 1]


def series(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric, from the lines that have it."""
    points = [(r["step"], r[name]) for r in records if "step" in r and isinstance(r.get(name), int | float)]
    return [step for step, _ in points], [float(value) for _, value in points]


def _draw(
    title: str,
    loss: tuple[list[int], list[float]],
    held_out: tuple[list[int], list[float]],
    rate: tuple[list[int], list[float]],
    path: Path,
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
    steps, values = loss
    if steps:
        top.plot(steps, values, color=SOFT, alpha=0.55, linewidth=0.8)
        top.plot(steps, smooth(values, len(values) // 20), color=ACCENT, linewidth=1.8, label="training")
    if held_out[0]:
        top.plot(*held_out, color=GREEN, linewidth=0.9, alpha=0.5)
        top.plot(*held_out, color=GREEN, linestyle="none", marker="o", markersize=5, label="held out")
    everything = sorted([*values, *held_out[1]])
    if len(everything) > 20:  # a spike must not flatten everything else
        high = everything[int(0.99 * (len(everything) - 1))]
        low = everything[0]
        if everything[-1] > high + (high - low):
            top.set_ylim(low - 0.05 * (high - low), high + 0.5 * (high - low))
    top.set_ylabel("loss", color=INK)
    top.legend(frameon=False, loc="upper right", labelcolor=INK)
    top.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold")
    below.plot(*rate, color=INK, linewidth=1.0)
    below.fill_between(*rate, color=SOFT, alpha=0.25, linewidth=0)
    below.set_ylim(bottom=0)
    below.set_ylabel("learning\nrate", color=INK, fontsize=8)
    below.set_xlabel("optimiser step", color=INK)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axes in (top, below):
        tidy(axes)
    figure.savefig(path, metadata={"Software": None})


def tidy(axes: Any) -> None:
    """Take away what is not data: frames, dark ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(axis="y", color=SOFT, alpha=0.25, linewidth=0.6)
    axes.margins(x=0.01)
