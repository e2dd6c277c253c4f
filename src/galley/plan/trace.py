"""How a decision or a prediction was found: what `galley plan --why KEY` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from galley.plan.types import Plan


@dataclass(frozen=True)
class Trace:
    """How something was found.

    Args:
        rule: in words, or as a formula.
        figures: name and value of what goes into it, for a plan.
        source: of the rule.
    """

    rule: str
    figures: Callable[[Plan], Iterator[tuple[str, str]]]
    source: str = "galley/plan/rules.py"
