"""What the loop looks at after each step: tensors that do not train, numbers that are not finite, sudden jumps."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from galley.base import GalleyError
from galley.engines.base import StepResult

WITHHELD_IN_A_ROW = 5
"""Steps without a finite gradient that are skipped before the training stops."""
SPIKE = 3.0
"""A loss this many times the recent median is noted."""
RECENT = 50
"""Losses that the median is taken over."""


@dataclass
class Guard:
    """Memory of the recent steps. Kept in checkpoints, so that a resumed run judges as the undisturbed one would.

    Args:
        withheld: steps in a row whose update was not applied.
        recent: the last applied losses.
    """

    withheld: int = 0
    recent: tuple[float, ...] = ()

    def look(self, step: int, result: StepResult, *, adapter: bool) -> list[tuple[str, str]]:
        """Judge one step.

        Args:
            step: its number, from 1.
            result: what the engine reported.
            adapter: whether an adapter is trained; each of its tensors must then get a gradient.

        Returns:
            Notes as (kind, message).

        Raises:
            GalleyError: `loss-not-finite` after several withheld updates, `adapter-targets` for an adapter that does
                not train.
        """
        notes = []
        if step == 1 and result.untrained and result.denominator:
            notes.append(("untrained", untrained_message(result.untrained, adapter=adapter)))
        if result.applied:
            self.withheld = 0
            usual = statistics.median(self.recent) if len(self.recent) >= 10 else result.loss
            if result.loss > SPIKE * max(usual, 0.1):
                notes.append(("loss-spike", f"step {step}: loss {result.loss:.3g}, lately {usual:.3g}"))
            self.recent = (*self.recent, result.loss)[-RECENT:]
        elif result.denominator:
            self.withheld += 1
            facts = f"loss {result.loss:.3g}, gradient norm {result.grad_norm:.3g}"
            notes.append(("update-withheld", f"step {step}: {facts}; the weights were left as they were"))
        if self.withheld >= WITHHELD_IN_A_ROW:
            raise GalleyError(
                "loss-not-finite",
                f"loss or gradient were not finite for {self.withheld} steps in a row, up to step {step}",
                hint="lower optimizer.learning_rate, set override.precision: fp32, or look at the rows of these steps",
            )
        return notes


def untrained_message(names: tuple[str, ...], *, adapter: bool) -> str:
    """Words for tensors without a gradient.

    Raises:
        GalleyError: `adapter-targets` when an adapter is trained.
    """
    message = f"{len(names)} trainable tensors got no gradient in the first step, such as {names[0]}"
    if adapter:
        raise GalleyError(
            "adapter-targets",
            f"{message}: the adapter sits on modules that the loss does not reach",
            hint="set override.targets to modules that the forward pass uses, or leave it out",
        )
    return message
