"""A page of text and bars, drawn by matplotlib: as wide as it is told, as long as what is on it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INK, SOFT, FAINT, ACCENT, PAPER = "#1f2937", "#6b7280", "#e5e7eb", "#2563eb", "#ffffff"
WIDTH, MARGIN = 10.0, 0.55
"""Inches."""
ROOM = WIDTH - 2 * MARGIN
_POINT = 1 / 72
_LETTER = 0.53
"""Of the font's size: the mean width of a letter."""


@dataclass(frozen=True)
class Piece:
    """Of a stacked bar.

    Args:
        name, value: in words, for the legend.
        size: along the bar.
        color: of it.
    """

    name: str
    value: str
    size: float
    color: str


class Sheet:
    """What is drawn, from top to bottom; `save` draws it. Places are in inches from the top left."""

    def __init__(self) -> None:
        self.y = MARGIN
        self._drawn: list[Callable[[Any], object]] = []

    def gap(self, inches: float) -> None:
        """Go down."""
        self.y += inches

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 9,
        color: str = INK,
        bold: bool = False,
        align: str = "left",
    ) -> None:
        """A line of text, its middle at `y`."""
        style = {"fontsize": size, "color": color, "fontweight": "bold" if bold else "normal"}
        self._drawn.append(
            lambda axes: axes.text(x, y, words, ha=align, va="center_baseline", parse_math=False, **style)
        )

    def box(self, x: float, y: float, width: float, height: float, color: str, *, edge: str = "none") -> None:
        """A rectangle from its top left corner."""

        def draw(axes: Any) -> None:
            from matplotlib.patches import Rectangle

            axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor=edge, linewidth=0.8))

        self._drawn.append(draw)

    def line(self, x: float, top: float, bottom: float, color: str, *, dashed: bool = False) -> None:
        """A vertical line."""
        style = "--" if dashed else "-"
        self._drawn.append(lambda axes: axes.plot([x, x], [top, bottom], color=color, linewidth=1.3, linestyle=style))

    def heading(self, words: str, beside: str = "") -> None:
        """The title of a part, with a remark at the right."""
        self.gap(0.28)
        self.text(MARGIN, self.y, words, size=11, bold=True)
        if beside:
            self.text(WIDTH - MARGIN, self.y, beside, size=9, color=SOFT, align="right")
        self.gap(0.26)

    def paragraph(
        self, words: str, *, x: float = MARGIN, size: float = 9, color: str = INK, bold: bool = False
    ) -> None:
        """Wrapped lines."""
        for line in wrapped(words, WIDTH - MARGIN - x, size):
            self.text(x, self.y, line, size=size, color=color, bold=bold)
            self.gap(size * _POINT * 1.5)

    def stack(self, pieces: Sequence[Piece], whole: float, height: float = 0.42) -> None:
        """A stacked bar of which the room stands for `whole`, with the larger pieces named on it."""
        x = MARGIN
        for piece in pieces:
            width = ROOM * piece.size / whole
            self.box(x, self.y, width, height, piece.color, edge=PAPER)
            if width > _width(piece.name, 8.5) + 0.12:
                self.text(x + width / 2, self.y + height / 2, piece.name, size=8.5, color=PAPER, align="center")
            x += width
        self.gap(height)

    def legend(self, pieces: Sequence[Piece]) -> None:
        """Colour, name and value of each piece, row by row."""
        self.gap(0.2)
        self.pairs([(piece.name, piece.value) for piece in pieces], colors=[piece.color for piece in pieces])

    def pairs(self, pairs: Sequence[tuple[str, str]], *, colors: Sequence[str] = (), columns: int = 4) -> None:
        """Names and values in columns, row by row, each behind its colour where there are colours."""
        between = 0.34
        wide = (ROOM + between) / columns
        for number, (name, value) in enumerate(pairs):
            x = MARGIN + wide * (number % columns)
            if number and number % columns == 0:
                self.gap(0.25)
            if colors:
                self.box(x, self.y - 0.06, 0.12, 0.12, colors[number])
            self.text(x + (0.2 if colors else 0), self.y, name, size=9, color=SOFT)
            self.text(x + wide - between, self.y, value, size=9, align="right")
        self.gap(0.25)

    def tiles(self, tiles: Sequence[tuple[str, str, str]], height: float = 0.78) -> None:
        """Boxes side by side: a name, a large value and a remark in each, as large as fits."""
        between, inside = 0.12, 0.13
        row = max(4, len(tiles)) if len(tiles) < 5 else math.ceil(len(tiles) / math.ceil(len(tiles) / 4))
        wide = (ROOM + between) / row
        room = wide - between - 2 * inside
        for number, (name, value, remark) in enumerate(tiles):
            x = MARGIN + wide * (number % row)
            if number and number % row == 0:
                self.gap(height + between)
            self.box(x, self.y, wide - between, height, "#f3f4f6")
            size = min(13.0, 13.0 * room / max(room, _width(value, 15)))
            self.text(x + inside, self.y + 0.17, name, size=8, color=SOFT)
            self.text(x + inside, self.y + 0.4, value, size=size, bold=True)
            self.text(x + inside, self.y + 0.63, remark, size=7, color=SOFT)
        self.gap(height)

    def save(self, path: Path) -> None:
        """Draw it.

        Args:
            path: ending in `.svg` or `.png`; a file that is there is replaced.
        """
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        height = self.y + MARGIN
        figure = Figure(figsize=(WIDTH, height), dpi=150, facecolor=PAPER)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        for draw in self._drawn:
            draw(axes)
        # Without a date, a program's version or random names: the same plan gives the same picture.
        about = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        with rc_context({"svg.hashsalt": "galley"}):
            figure.savefig(path, metadata=about)


def wrapped(words: str, room: float, size: float) -> list[str]:
    """Lines that fit into so many inches."""
    return textwrap.wrap(words, max(20, int(room / (size * _POINT * _LETTER)))) or [""]


def _width(words: str, size: float) -> float:
    return len(words) * size * _POINT * (_LETTER + 0.06)
