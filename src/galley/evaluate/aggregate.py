"""Several trainings of one recipe, seen together: the mean, the interquartile mean, and how sure both are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from galley.runs import RunFolder

    Array = np.ndarray[Any, Any]

_RESAMPLES = 2000
_POINTS = 200


@dataclass(frozen=True)
class Aggregate:
    """The verdicts of several seeds.

    Args:
        scores: of the tuned model, one for each seed.
        base: mean of the base models.
        mean: of the scores, with its 95 % interval.
        iqm: interquartile mean: of the middle half of the scores, with its 95 % interval.
        higher_is_better: of the scores.
    """

    scores: tuple[float, ...]
    base: float
    mean: float
    mean_interval: tuple[float, float]
    iqm: float
    iqm_interval: tuple[float, float]
    higher_is_better: bool

    def to_json(self) -> dict[str, Any]:
        """For seeds.json."""
        return asdict(self)


def interquartile_mean(scores: Sequence[float] | Array) -> float:
    """Mean of the middle half; where a quarter is no whole number, the scores at its edge count in part.

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """
    ordered = np.sort(np.asarray(scores, np.float64))
    number = len(ordered)
    # Score i stands for the piece from i/n to (i+1)/n of the distribution; a quarter is cut from each side.
    low = np.arange(number) / number
    weights = np.clip(np.minimum(low + 1 / number, 0.75) - np.maximum(low, 0.25), 0, None)
    return float((ordered * weights).sum() / weights.sum())


def aggregate(verdicts: Sequence[Mapping[str, Any]]) -> Aggregate:
    """The verdicts of several seeds together; intervals by bootstrap over seeds.

    Args:
        verdicts: contents of verdict.json; at least one.
    """
    scores = np.array([verdict["tuned"] for verdict in verdicts], np.float64)
    random = np.random.default_rng(0)
    drawn = scores[random.integers(len(scores), size=(_RESAMPLES, len(scores)))]
    iqms = [interquartile_mean(row) for row in drawn]
    return Aggregate(
        scores=tuple(scores.tolist()),
        base=float(np.mean([verdict["base"] for verdict in verdicts])),
        mean=float(scores.mean()),
        mean_interval=_interval(drawn.mean(axis=1)),
        iqm=interquartile_mean(scores),
        iqm_interval=_interval(np.array(iqms)),
        higher_is_better=bool(verdicts[0]["higher_is_better"]),
    )


def _interval(values: Array) -> tuple[float, float]:
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))


def curves(runs: Sequence[RunFolder], name: str) -> tuple[Array, Array]:
    """One metric of several runs at common steps.

    Args:
        runs: with metrics.
        name: of the metric, e.g. `evaluation_return`.

    Returns:
        Steps [P], and values [R, P], interpolated; runs without the metric are left out.
    """
    series = []
    for run in runs:
        points = [(line["step"], line[name]) for line in run.metrics() if name in line]
        if points:
            series.append(np.array(points, np.float64))
    if not series:
        return np.zeros(0), np.zeros((0, 0))
    start = max(line[0, 0] for line in series)
    end = min(line[-1, 0] for line in series)
    steps = np.linspace(start, max(start, end), _POINTS)
    return steps, np.stack([np.interp(steps, line[:, 0], line[:, 1]) for line in series])


def seeds_plot(runs: Sequence[RunFolder], title: str, path: Path) -> bool:
    """Draw the interquartile mean over the steps with its interval, and each seed lightly.

    Args:
        runs: of the seeds.
        title: of the picture.
        path: of the picture, a PNG.

    Returns:
        Whether there was something to draw.
    """
    names = ("evaluation_return", "return", "held_out_loss", "loss")
    name = next((n for n in names if curves(runs, n)[1].size), None)
    if name is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from galley.runs.plot import ACCENT, INK, SOFT, tidy

    steps, values = curves(runs, name)
    random = np.random.default_rng(0)
    drawn = values[random.integers(len(values), size=(200, len(values)))]
    middle = np.array([interquartile_mean(values[:, i]) for i in range(len(steps))])
    spread = np.array([[interquartile_mean(sample[:, i]) for i in range(len(steps))] for sample in drawn])
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(steps, values.T, color=SOFT, linewidth=0.7, alpha=0.7)
    low, high = np.quantile(spread, (0.025, 0.975), axis=0)
    axes.fill_between(steps, low, high, color=ACCENT, alpha=0.2, linewidth=0)
    axes.plot(steps, middle, color=ACCENT, linewidth=1.8, label=f"interquartile mean of {len(values)} seeds, 95 %")
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold")
    axes.set_ylabel(name.replace("_", " "), color=INK)
    axes.set_xlabel("steps", color=INK)
    axes.legend(frameon=False, labelcolor=INK)
    tidy(axes)
    figure.savefig(path, metadata={"Software": None})
    return True
