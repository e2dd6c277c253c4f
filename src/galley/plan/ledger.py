"""The list of decisions that a plan is made of, each with its reason."""

from __future__ import annotations

from typing import TypeVar

from galley.plan.types import Decision

T = TypeVar("T")


class Ledger:
    """Collects decisions and warnings while the planner works."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.warnings: list[str] = []

    def choose(self, key: str, pin: T | None, default: T, *, because: str, unless: str = "") -> T:
        """The pinned value, else the default, noted with its reason.

        Args:
            key: name of the decision, the recipe's word where there is one.
            pin: what the recipe asks for, or None.
            default: what the planner would do.
            because: why the default is right.
            unless: what would change it.
        """
        if pin is not None:
            self.decisions.append(Decision(key=key, value=say(pin), because="the recipe asks for it", pinned=True))
            return pin
        self.decisions.append(Decision(key=key, value=say(default), because=because, would_change_if=unless))
        return default

    def in_order(self, keys: tuple[str, ...]) -> tuple[Decision, ...]:
        """The decisions in the order in which a person wants to read them."""
        return tuple(sorted(self.decisions, key=lambda decision: keys.index(decision.key)))

    def warn(self, message: str) -> None:
        """Something that the user should know before training."""
        self.warnings.append(message)


def say(value: object) -> str:
    """A value as a person would write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
