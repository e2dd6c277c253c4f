"""The plan of an agent as one page."""

from __future__ import annotations

from collections.abc import Iterator

from galley.base import format_bytes
from galley.plan.control import ControlPlan
from galley.plan.explain import Page, say_warnings

_BOLD, _DIM, _CYAN = "\x1b[1m", "\x1b[2m", "\x1b[36m"


def explain_control(plan: ControlPlan, *, width: int, color: bool) -> str:
    """The page that `galley plan` shows for task control.

    Args:
        plan: what was decided.
        width: columns of the terminal; at least 60 are used.
        color: whether to use ANSI colours.
    """
    page = Page(max(width, 60), color)
    lines = [
        *_title(plan, page),
        *_decisions(plan, page),
        *_memory(plan, page),
        *_length(plan, page),
        *say_warnings(plan.warnings, page),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(plan: ControlPlan, page: Page) -> Iterator[str]:
    yield page.paint(f"control by {plan.method}: {plan.data}", _BOLD)
    memory = format_bytes(plan.hardware.memory_bytes)
    threads = f"{plan.threads} thread{'s' * (plan.threads > 1)}"
    yield page.paint(f"on {threads} of {plan.hardware.name}, {memory} of memory", _DIM)


def _decisions(plan: ControlPlan, page: Page) -> Iterator[str]:
    yield from page.heading("Decisions")
    for decision in plan.decisions:
        yield from page.fields(decision.key, decision.value + "*" * decision.pinned, decision.because)
    for key, value in plan.method_options.items():
        yield f"  {f'method.{key}':<34}{page.paint(f'{value}*', _CYAN)}"
    if plan.method_options or any(decision.pinned for decision in plan.decisions):
        yield page.paint("  * pinned by the recipe", _DIM)


def _memory(plan: ControlPlan, page: Page) -> Iterator[str]:
    predicted = plan.predicted
    yield from page.heading("Memory")
    yield f"  {format_bytes(predicted.memory_bytes)}, of {format_bytes(plan.hardware.memory_bytes)}"
    for name, size in predicted.memory_parts.items():
        yield f"  {name:<20}{format_bytes(size):>11}"


def _length(plan: ControlPlan, page: Page) -> Iterator[str]:
    yield from page.heading("Length and evaluation")
    if plan.minutes is not None:
        yield from page.fields(
            "time limit", f"{plan.minutes:g} min", "then it stops, and the best policy is the result"
        )
    goal = ", ".join(f"{name} {wanted:g}" for name, wanted in plan.until.items())
    if goal:
        yield from page.fields("until", goal, "reached in an evaluation, it stops")
    yield from page.fields(
        "evaluation",
        f"{plan.evaluate_every:,} steps",
        f"between evaluations of {plan.evaluate_episodes} episodes, the best actions in environments of their own; "
        "the best policy is the result",
    )
    yield from page.fields(
        "verdict", f"{plan.judge_episodes} episodes", "of the result and of random actions, by which nothing was chosen"
    )
