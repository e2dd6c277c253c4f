"""Memory of one device by phase of a training, from its parts at the peak."""

from __future__ import annotations

from collections.abc import Mapping

_LOADED = ("weights", "runtime")
_PASSING = ("activations", "logits")
"""Freed before the update."""


def phases_of(parts: Mapping[str, int], factor: float = 1.0) -> dict[str, int]:
    """Likely bytes at the peak of each phase; none where the size of the model is unknown.

    Evaluation needs less than a step, by how much the parts do not say; so it is left out.

    Args:
        parts: bytes by part, at the peak of a step.
        factor: measured over predicted, as learned from earlier trainings.
    """
    if not parts.get("weights"):
        return {}
    load = sum(parts.get(name, 0) for name in _LOADED)
    step = sum(parts.values())
    update = step - sum(parts.get(name, 0) for name in _PASSING)
    return {name: int(factor * size) for name, size in (("load", load), ("step", step), ("save", update))}
