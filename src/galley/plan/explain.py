"""The plan as one page: what happens, why, in how much memory and time, and what lost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from galley.base import format_bytes, format_count, format_duration
from galley.plan.types import Decision, Plan

_RESET, _BOLD, _DIM, _CYAN, _YELLOW = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[33m"
_NARROWEST = 60
_KEY = 20
_VALUE = 14
_EIGHTHS = " ▏▎▍▌▋▊▉"


def explain(plan: Plan, *, width: int, color: bool) -> str:
    """The page that `galley plan` shows.

    Args:
        plan: what was decided.
        width: columns of the terminal; at least 60 are used.
        color: whether to use ANSI colours.
    """
    page = Page(max(width, _NARROWEST), color)
    lines = [
        *_title(plan, page),
        *_decisions(plan, page),
        *_memory(plan, page),
        *_step(plan, page),
        *_time(plan, page),
        *_quality(plan, page),
        *_alternatives(plan, page),
        *say_warnings(plan.warnings, page),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


class Page:
    """Width and colours."""

    def __init__(self, width: int, color: bool) -> None:
        self.width = width
        self.color = color

    def paint(self, text: str, style: str) -> str:
        """The text in a style, where there are colours."""
        return f"{style}{text}{_RESET}" if self.color and text else text

    def heading(self, text: str) -> list[str]:
        """A title with an empty line before it."""
        return ["", self.paint(text, _BOLD)]

    def wrap(self, text: str, indent: int) -> list[str]:
        """Lines of what fits beside an indent."""
        return textwrap.wrap(text, max(20, self.width - indent), break_long_words=False) or [""]

    def fields(self, key: str, value: str, text: str, style: str = "") -> Iterator[str]:
        """Key, value and wrapped text in three columns; a long value takes a line of its own."""
        indent = 2 + _KEY + _VALUE
        if len(key) >= _KEY + _VALUE and not value:
            for line in self.wrap(key, 2):
                yield "  " + line
            key = ""
        head = f"  {key:<{_KEY}}"
        if len(value) >= _VALUE:
            yield head + self.paint(value, _CYAN)
            head, value = " " * (2 + _KEY), ""
        first, *rest = self.wrap(text, indent)
        yield head + self.paint(f"{value:<{_VALUE}}", _CYAN) + self.paint(first, style)
        for line in rest:
            yield " " * indent + self.paint(line, style)


def place_of(plan: Plan) -> str:
    """Where it runs, in words."""
    devices = plan.hardware.world
    if plan.device != "cpu":
        return f"{devices:,} x {plan.hardware.name}" if devices > 1 else plan.hardware.name
    names = [f.upper().replace("_", "-") for f in plan.hardware.features if "bf16" in f]
    return f"{plan.threads} processor cores" + (f" with {' and '.join(names)}" if names else "")


def _title(plan: Plan, page: Page) -> Iterator[str]:
    words = f"{plan.task} by {plan.method}: {plan.model}"
    yield page.paint(words, _BOLD)
    memory = format_bytes(plan.hardware.memory_bytes)
    for line in page.wrap(f"{plan.rows:,} training rows, on {place_of(plan)}, {memory} of memory", 0):
        yield page.paint(line, _DIM)


def _decisions(plan: Plan, page: Page) -> Iterator[str]:
    yield from page.heading("Decisions")
    for decision in plan.decisions:
        yield from page.fields(decision.key, decision.value + ("*" if decision.pinned else ""), decision.because)
        yield from unless(decision, page)
    if any(decision.pinned for decision in plan.decisions):
        yield page.paint("  * pinned by the recipe", _DIM)


def unless(decision: Decision, page: Page) -> Iterator[str]:
    """What would change a decision, below its reason."""
    if decision.would_change_if:
        indent = 2 + _KEY + _VALUE
        for line in page.wrap(f"would change if {decision.would_change_if}", indent):
            yield " " * indent + page.paint(line, _DIM)


def _memory(plan: Plan, page: Page) -> Iterator[str]:
    parts = plan.predicted.memory_parts
    if not parts:
        return
    low, likely, high = plan.predicted.memory_bytes
    yield from page.heading("Memory at the peak")
    if not parts.get("weights"):
        yield f"  {format_bytes(likely)} beside the model, whose size shows when it is built"
        return
    total = f"{format_bytes(likely)} likely, {format_bytes(low)} to {format_bytes(high)}"
    yield f"  {total}, of {format_bytes(plan.hardware.memory_bytes)}"
    room = max(10, min(40, page.width - 2 - _KEY - _VALUE))
    largest = max(parts.values())
    for name, size in parts.items():
        bar = bar_of(size / largest, room) if size else ""
        yield f"  {name:<{_KEY}}{format_bytes(size):>{_VALUE - 3}}   {page.paint(bar, _CYAN)}"
    if phases := plan.predicted.memory_phases:
        yield from page.fields(
            "by phase", "", ", ".join(f"{name} {format_bytes(size)}" for name, size in phases.items())
        )


def bar_of(share: float, columns: int) -> str:
    """A bar of eighths of a column; never nothing."""
    whole, part = divmod(round(share * columns * 8), 8)
    return ("█" * whole + _EIGHTHS[part].strip()) or "▏"


def _step(plan: Plan, page: Page) -> Iterator[str]:
    """Where the time of a step goes, on several devices."""
    cluster = plan.cluster
    if cluster is None:
        return
    low, likely, high = cluster.step_seconds
    yield from page.heading("Time of a step")
    rows = f", with rows of {cluster.usual_tokens:,} tokens" if cluster.usual_tokens else ""
    span = f"{step_time(likely)} likely, {step_time(low)} to {step_time(high)}"
    yield f"  {span}{rows}; {cluster.mfu:.0%} of peak (MFU)"
    room = max(10, min(40, page.width - 2 - _KEY - _VALUE))
    largest = max(cluster.time_parts.values())
    for name, seconds in cluster.time_parts.items():
        if seconds >= 0.001 * likely:
            bar = page.paint(bar_of(seconds / largest, room), _CYAN)
            yield f"  {name:<{_KEY}}{step_time(seconds):>{_VALUE - 3}}   {bar}"


def step_time(seconds: float) -> str:
    """`1.23 s`, `74.6 ms`."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _time(plan: Plan, page: Page) -> Iterator[str]:
    yield from page.heading("Time and size")
    low, likely, high = plan.predicted.tokens_per_second
    unit = "tokens"
    if likely > 0:
        shortest, middle, longest = plan.predicted.seconds
        span = f"{format_duration(shortest)} to {format_duration(longest)}"
        yield from page.fields(
            "training", format_duration(middle), f"{span}; stops by the clock" if plan.minutes else span
        )
        yield from page.fields("speed", f"{likely:,.0f}/s", f"tokens a second, {low:,.0f} to {high:,.0f}")
    else:
        unit = "rows"
        yield from page.fields("training", "unknown", "the work of this model shows at the first step")
    estimate = "" if plan.exact or unit == "rows" else ", estimated from characters"
    steps, epochs, most = plan.steps, plan.epochs, ""
    if plan.minutes and likely > 0:
        share = min(1.0, plan.minutes * 60 * likely / max(1.0, plan.tokens * epochs))
        steps, epochs, most = round(steps * share), epochs * share, f"; {steps:,} at most"
    yield from page.fields(
        "steps", f"{steps:,}", f"of {plan.batch.global_batch_rows} rows each, {epochs:.3g} epochs{most}"
    )
    yield from page.fields(unit, format_count(plan.tokens * epochs), f"{plan.tokens:,} an epoch{estimate}")
    if plan.cluster is not None:
        energy = f"{plan.cluster.kilowatt_hours:,.3g} kWh"
        yield from page.fields("energy", energy, "all devices at their most; without hosts, network and cooling")
    if plan.predicted.cost is not None:
        cheap, usual, dear = plan.predicted.cost
        price = f"{cheap:,.2f} to {dear:,.2f}, at {plan.price_per_hour:g} an hour for all the hardware, while it trains"
        yield from page.fields("cost", f"{usual:,.2f}", price)
    if learned := plan.predicted.correction.trainings:
        factors = plan.predicted.correction
        text = f"predicted speed times {factors.speed[1]:.2f} and memory times {factors.memory[1]:.2f}, as they needed"
        yield from page.fields("learned from", f"{learned} training{'s' * (learned > 1)}", text)
    if plan.predicted.disk_bytes:
        disk = format_bytes(plan.predicted.disk_bytes)
        yield from page.fields("disk", disk, "checkpoints that are kept, and the result")


def _quality(plan: Plan, page: Page) -> Iterator[str]:
    """Defaults that change what is learned, whether or not anyone chose them."""
    optimizer, batch = plan.optimizer, plan.batch
    yield from page.heading("What shapes the result")
    yield from page.fields(
        "loss",
        "sum / count",
        "over the whole step: the same whatever the micro-batches; every learned unit counts once",
    )
    betas = " and ".join(f"{beta:g}" for beta in optimizer.betas)
    clip = f"gradients clipped at {optimizer.clip:g}" if optimizer.clip else "no clipping"
    warmup = f"warm-up over {100 * optimizer.warmup_steps / plan.steps:.2g} % of the steps"
    decay = f"weight decay {optimizer.weight_decay:g}, betas {betas}"
    yield from page.fields(
        optimizer.name, f"{optimizer.learning_rate:g}", f"{optimizer.schedule}, {warmup}, {decay}, {clip}"
    )
    if plan.adapter is not None:
        adapter = plan.adapter
        where = adapter.targets if isinstance(adapter.targets, str) else ", ".join(adapter.targets)
        text = f"rank {adapter.rank}, scale {adapter.alpha / adapter.rank:g}, dropout {adapter.dropout:g}, on {where}"
        yield from page.fields("adapter", plan.tuning, text)
    if batch.packing:
        yield from page.fields("packing", "on", "rows lie end to end, and none sees another")
    yield from page.fields(
        "evaluation", f"{plan.evaluate_every:,} steps", "between held-out losses; the lowest is kept"
    )


def _alternatives(plan: Plan, page: Page) -> Iterator[str]:
    if not plan.alternatives:
        return
    yield from page.heading("What lost")
    for alternative in plan.alternatives:
        yield from page.fields(alternative.summary, "", alternative.lost_because, _DIM)


def say_warnings(warnings: Sequence[str], page: Page) -> Iterator[str]:
    """Lines about what the user should look at; none when there is nothing."""
    if not warnings:
        return
    yield from page.heading("Look at this")
    for warning in warnings:
        for number, line in enumerate(page.wrap(warning, 4)):
            yield page.paint(f"  {'!' if number == 0 else ' '} {line}", _YELLOW)
