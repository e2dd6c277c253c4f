"""The loss picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.runs import RunFolder, loss_plot
from galley.runs.plot import smooth

pytestmark = pytest.mark.unit


def test_a_picture_of_what_was_measured(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "faq", recipe="", plan={}, manifest={})
    assert loss_plot(run) is None
    with run.open_metrics() as metrics:
        for step in range(1, 60):
            metrics.append({"step": step, "loss": 3 / step, "learning_rate": 1e-3})
            if step % 10 == 0:
                metrics.append({"step": step, "held_out_loss": 3.5 / step})
        metrics.append({"step": 60, "loss": float("nan")})
    path = loss_plot(run)
    assert path == run.result / "loss.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    blue = _pixels_near(path, (0x25, 0x63, 0xEB))
    green = _pixels_near(path, (0x05, 0x96, 0x69))
    assert blue > 500, "the smoothed training loss is drawn"
    assert green > 200, "the held-out losses are drawn"


def _pixels_near(path: Path, color: tuple[int, int, int]) -> int:
    import numpy as np
    from matplotlib.image import imread

    image = np.asarray(imread(path))[..., :3] * 255
    return int((abs(image - np.asarray(color)).max(axis=-1) < 12).sum())


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=50), st.integers(1, 9))
def test_smoothing_stays_within_the_values(values: list[float], window: int) -> None:
    smoothed = smooth(values, window)
    assert len(smoothed) == len(values)
    assert all(min(values) - 1e-9 <= value <= max(values) + 1e-9 for value in smoothed)


def test_smoothing_keeps_lines_and_removes_spikes() -> None:
    line = [float(i) for i in range(30)]
    assert smooth(line, 7)[3:-3] == pytest.approx(line[3:-3])
    assert smooth([1.0] * 10 + [100.0] + [1.0] * 10, 5) == pytest.approx([1.0] * 21)
    assert smooth([5.0, 1.0], 1) == [5.0, 1.0]
