"""The plan as a picture: the job, what it takes, memory and time by part, and what lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from galley.base import GalleyError, format_bytes, format_count, format_duration
from galley.plan.explain import place_of, step_time
from galley.plan.sheet import ACCENT, FAINT, MARGIN, ROOM, SOFT, Piece, Sheet
from galley.plan.types import Plan

FORMATS = (".svg", ".png")
_LIMIT = "#b91c1c"
_COLORS = {
    "weights": "#2563eb",
    "gradients": "#7c3aed",
    "optimizer": "#c026d3",
    "activations": "#d97706",
    "logits": "#ea580c",
    "products": "#2563eb",
    "attention": "#0284c7",
    "other": "#0d9488",
    "head": "#4f46e5",
    "tensor": "#d97706",
    "pipeline": "#dc2626",
    "data": "#7c3aed",
    "context": "#b45309",
    "expert": "#db2777",
    "offload": "#9f1239",
}
_OTHERS = ("#475569", "#64748b", "#94a3b8", "#78716c", "#a8a29e")
_SMALLEST = 0.002
"""Of the whole: smaller parts are not drawn."""


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed.

    Raises:
        GalleyError: `usage`, for other formats and for folders that are not there.
    """
    if path.suffix.lower() not in FORMATS:
        raise GalleyError("usage", f"{path} is no picture that can be drawn", hint="a name that ends in .svg or .png")
    if not path.absolute().parent.is_dir():
        raise GalleyError("usage", f"there is no folder {path.absolute().parent}", hint="make it, or name another")


def picture(plan: Plan, path: Path) -> None:
    """Draw the plan.

    Args:
        plan: what was decided.
        path: ending in `.svg` or `.png`; a file that is there is replaced.

    Raises:
        GalleyError: `usage` where the file cannot be written.
    """
    check_picture(path)
    sheet = Sheet()
    _title(plan, sheet)
    sheet.tiles(list(_figures(plan)))
    _memory(plan, sheet)
    _time(plan, sheet)
    _decisions(plan, sheet)
    _alternatives(plan, sheet)
    try:
        sheet.save(path)
    except PermissionError as error:
        raise GalleyError("usage", f"{path} cannot be written: {error.strerror}", hint="name another file") from None


def _title(plan: Plan, sheet: Sheet) -> None:
    sheet.gap(0.05)
    sheet.paragraph(f"{plan.task} by {plan.method}: {plan.model}", size=16, bold=True)
    sheet.gap(0.02)
    memory = f"{format_bytes(plan.hardware.memory_bytes)} of memory" + (" each" if plan.hardware.world > 1 else "")
    sheet.paragraph(f"{plan.rows:,} training rows, on {place_of(plan)}, {memory}", size=10, color=SOFT)
    sheet.gap(0.12)


def _figures(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What people ask for first: name, value and remark."""
    predicted = plan.predicted
    low, likely, high = predicted.seconds
    if likely > 0:
        yield "training", format_duration(likely), f"{format_duration(low)} to {format_duration(high)}"
        slow, usual, fast = predicted.tokens_per_second
        yield "tokens a second", format_count(usual), f"{format_count(slow)} to {format_count(fast)}"
    yield "steps", f"{plan.steps:,}", f"of {plan.batch.global_batch_rows:,} rows, {plan.epochs:.3g} epochs"
    if predicted.cost is not None:
        cheap, price, dear = predicted.cost
        yield "cost", f"{price:,.2f}", f"{cheap:,.2f} to {dear:,.2f}"
    if plan.cluster is not None:
        yield "energy", f"{plan.cluster.kilowatt_hours:,.3g} kWh", "devices alone, at their most"
        yield "of peak (MFU)", f"{plan.cluster.mfu:.0%}", "without recomputation"
    if predicted.disk_bytes:
        yield "disk", format_bytes(predicted.disk_bytes), "checkpoints and result"


def _memory(plan: Plan, sheet: Sheet) -> None:
    """Parts at the peak against what the device has, and each phase below at the same scale."""
    parts = {name: size for name, size in plan.predicted.memory_parts.items() if size}
    if not parts.get("weights"):
        return
    low, likely, high = plan.predicted.memory_bytes
    limit = float(plan.hardware.memory_bytes)
    whole = max(limit, float(high))
    span = f"{format_bytes(likely)} likely, {format_bytes(low)} to {format_bytes(high)}"
    sheet.heading("Memory of a device at the peak" if plan.hardware.world > 1 else "Memory at the peak", span)
    scale = likely / sum(parts.values())
    pieces = _pieces({name: size * scale for name, size in parts.items()}, format_bytes, whole)
    sheet.gap(0.14)
    top = sheet.y - 0.06
    sheet.box(MARGIN, sheet.y, ROOM * limit / whole, 0.42, FAINT)
    sheet.stack(pieces, whole)
    sheet.gap(0.1)
    for name, size in plan.predicted.memory_phases.items():
        width = ROOM * size / whole
        sheet.box(MARGIN, sheet.y, width, 0.11, "#bfdbfe" if size < likely else "#93c5fd")
        sheet.text(MARGIN + width + 0.08, sheet.y + 0.055, f"{name} {format_bytes(size)}", size=7.5, color=SOFT)
        sheet.gap(0.17)
    x = MARGIN + ROOM * limit / whole
    sheet.line(x, top, sheet.y - 0.02, _LIMIT)
    sheet.text(x, top - 0.09, f"there are {format_bytes(limit)}", size=8, color=_LIMIT, align="right")
    sheet.legend(pieces)


def _time(plan: Plan, sheet: Sheet) -> None:
    """Parts of a step where they are known, else how long the training may take."""
    cluster = plan.cluster
    if cluster is not None:
        low, likely, high = cluster.step_seconds
        rows = f" with rows of {cluster.usual_tokens:,} tokens" if cluster.usual_tokens else ""
        sheet.heading(f"Time of a step{rows}", f"{step_time(likely)} likely, {step_time(low)} to {step_time(high)}")
        pieces = _pieces(cluster.time_parts, step_time, likely)
        sheet.stack(pieces, sum(piece.size for piece in pieces))
        sheet.legend(pieces)
        return
    low, likely, high = plan.predicted.seconds
    if likely <= 0:
        return
    stop = "; stops by the clock" if plan.minutes else ""
    sheet.heading("Time of the training", f"{format_duration(likely)} likely{stop}")
    whole = high
    sheet.box(MARGIN, sheet.y, ROOM * high / whole, 0.24, FAINT)
    sheet.box(MARGIN, sheet.y, ROOM * low / whole, 0.24, ACCENT)
    sheet.box(MARGIN + ROOM * low / whole, sheet.y, ROOM * (likely - low) / whole, 0.24, "#93c5fd")
    sheet.gap(0.36)
    for seconds, words, align in ((low, "at least", "right"), (likely, "likely", "right"), (high, "at most", "right")):
        x = MARGIN + ROOM * seconds / whole
        if words == "at most" or x < MARGIN + ROOM * 0.8:  # else it would lie on the last one
            sheet.text(x, sheet.y, f"{words} {format_duration(seconds)}", size=8, color=SOFT, align=align)
    sheet.gap(0.06)


def _decisions(plan: Plan, sheet: Sheet) -> None:
    """Each value; the page has the reasons."""
    sheet.heading("Decisions", "* pinned by the recipe" if any(d.pinned for d in plan.decisions) else "")
    short = [d for d in plan.decisions if len(d.value) < 17]
    sheet.pairs([(d.key, d.value + "*" * d.pinned) for d in short])
    for decision in plan.decisions:
        if decision not in short:
            sheet.text(MARGIN, sheet.y, decision.key, size=9, color=SOFT)
            sheet.paragraph(decision.value + "*" * decision.pinned, x=MARGIN + 1.2)
            sheet.gap(0.06)
    sheet.gap(-0.06)


def _alternatives(plan: Plan, sheet: Sheet) -> None:
    if not plan.alternatives:
        return
    sheet.heading("What lost")
    for alternative in plan.alternatives:
        sheet.paragraph(alternative.summary)
        sheet.paragraph(alternative.lost_because, x=MARGIN + 0.2, size=8.5, color=SOFT)
        sheet.gap(0.06)


def _pieces(parts: dict[str, float], words: Callable[[float], str], whole: float) -> list[Piece]:
    """Of a bar, without those too small to see."""
    others = iter(_OTHERS * len(parts))
    return [
        Piece(name, words(size), float(size), _COLORS.get(name) or next(others))
        for name, size in parts.items()
        if size >= _SMALLEST * whole
    ]
