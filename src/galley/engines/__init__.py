"""Engines place a model on devices and take optimiser steps; one file each, found by name."""

from __future__ import annotations

from galley.base import Registry
from galley.engines.base import Engine, LossFn, OutOfMemoryError, StepResult

registry: Registry[type[Engine]] = Registry("galley.engines", attribute="ENGINE", kind="engine")

__all__ = ["Engine", "LossFn", "OutOfMemoryError", "StepResult", "registry"]
