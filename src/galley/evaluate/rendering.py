"""A verdict as a page for the terminal."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence

from galley.base import format_duration
from galley.evaluate.verdict import Answer, Confusion, Verdict

_GREEN, _YELLOW, _RED, _BOLD, _DIM = "32", "33", "31", "1", "2"
_LABEL_WIDTH = 10
_TEXT_LINES = 3
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_MOST_CLASSES = 12
_BAR = 30


def render(verdict: Verdict, *, width: int = 80, color: bool = False) -> str:
    """The page: the sentence, both scores as bars, best and worst answers.

    Args:
        verdict: what to show.
        width: columns of the terminal.
        color: use ANSI colours.
    """
    return "\n".join(_Page(max(width, 40), color).lines(verdict))


class _Page:
    """Writes a verdict at a width, with or without colour."""

    def __init__(self, width: int, color: bool) -> None:
        self._width = min(width, 100)
        self._color = color

    def lines(self, verdict: Verdict) -> Iterator[str]:
        tone = _GREEN if verdict.better else _RED if verdict.worse else _YELLOW
        heading = "better" if verdict.better else "worse" if verdict.worse else "not better"
        yield self._paint(f"Verdict: {heading}", _BOLD, tone)
        yield from textwrap.wrap(verdict.sentence, self._width)
        yield ""
        yield from self._scores(verdict, tone)
        for note in verdict.notes:
            yield from textwrap.wrap(f"note: {note}", self._width, subsequent_indent="      ")
        if verdict.confusion is not None and len(verdict.confusion.labels) <= _MOST_CLASSES:
            yield ""
            yield from self._confusion(verdict.confusion)
        yield from self._answers("Best answers", verdict.best, _GREEN)
        yield from self._answers("Worst answers", verdict.worst, _RED)

    def _scores(self, verdict: Verdict, tone: str) -> Iterator[str]:
        top = 1.0 if verdict.higher_is_better and max(verdict.base, verdict.tuned) <= 1 else 0.0
        top = top or max(verdict.base, verdict.tuned) or 1.0
        unit = "episodes each" if verdict.scorer == "return" else "rows"
        yield self._paint(f"{verdict.metric}; {verdict.n} {unit}, {format_duration(verdict.seconds)}", _DIM)
        for name, value, paint in (("base", verdict.base, _DIM), ("tuned", verdict.tuned, tone)):
            filled = round(_BAR * max(0.0, min(1.0, value / top)))
            bar = self._paint("█" * filled, paint) + self._paint("░" * (_BAR - filled), _DIM)
            if min(verdict.base, verdict.tuned) < 0:
                bar = ""  # there is no length for less than nothing
            yield f"  {name:<{_LABEL_WIDTH}} {value:>8.3f}  {bar}".rstrip()
        low, high = verdict.interval
        chance = "" if verdict.p_value is None else f"  McNemar p {_p_value(verdict.p_value)}"
        change = f" {verdict.difference:>+8.3f}  95 % interval {low:+.3f} to {high:+.3f}"
        yield f"  {'difference':<{_LABEL_WIDTH}}{change}{chance}"

    def _confusion(self, confusion: Confusion) -> Iterator[str]:
        names = [_short(label, 12) for label in confusion.labels]
        wide = max(len(name) for name in names)
        cell = max(4, *(len(name) + 1 for name in names)) if len(names) * (wide + 1) + wide < self._width - 2 else 5
        yield self._paint("Rows of each class (down) by predicted class (across)", _BOLD)
        yield f"  {'':<{wide}}" + "".join(f"{name[: cell - 1]:>{cell}}" for name in names)
        for index, (name, counts) in enumerate(zip(names, confusion.counts, strict=True)):
            cells = (self._cell(count, cell, index == column) for column, count in enumerate(counts))
            yield f"  {name:<{wide}}" + "".join(cells)

    def _cell(self, count: int, width: int, is_right: bool) -> str:
        text = f"{count or '·':>{width}}"
        if not count:
            return self._paint(text, _DIM)
        return self._paint(text, _GREEN if is_right else _RED)

    def _answers(self, title: str, answers: Sequence[Answer], tone: str) -> Iterator[str]:
        if not answers:
            return
        yield ""
        yield self._paint(title, _BOLD)
        for answer in answers:
            change = f"{answer.base_score:.2f} -> {answer.tuned_score:.2f}"
            yield f"  {self._paint(change, tone)}  {self._paint(f'row {answer.row}', _DIM)}"
            texts = (
                ("asked", answer.prompt),
                ("expected", answer.expected),
                ("base", answer.base),
                ("tuned", answer.tuned),
            )
            for name, text in texts:
                if text.strip() or (name in ("base", "tuned") and (answer.base or answer.tuned)):
                    yield from self._field(name, text)

    def _field(self, name: str, text: str) -> list[str]:
        indent = " " * (_LABEL_WIDTH + 4)
        room = self._width - len(indent)
        flat = " ".join(text.split()) or "(nothing)"
        label = self._paint(f"    {name:<{_LABEL_WIDTH}}", _DIM)
        letters = (_TEXT_LINES * room - room // 4) * len(flat) // max(1, _columns(flat))
        # The end of a prompt is most often the question itself.
        lines = _wrapped(_without_middle(flat, letters) if name == "asked" else _short(flat, letters), room)
        return [label + lines[0], *(indent + line for line in lines[1:])]

    def _paint(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._color and text else text


def _wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns; wide characters take two, and lines may break between them."""
    lines = [""]
    for piece in re.findall(rf"[{_WIDE}]|[^\s{_WIDE}]+|\s+", text):
        for part in (piece[start : start + columns] for start in range(0, len(piece), columns)):
            if _columns(lines[-1] + part) > columns:
                lines.append(part.lstrip())
            else:
                lines[-1] += part
    return [line.rstrip() for line in lines]


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."


def _without_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head, tail = text[: longest // 3], text[len(text) - 2 * longest // 3 :]
    return f"{head.rstrip()} ... {tail.lstrip()}"
