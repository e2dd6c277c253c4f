"""Ways to learn to act, one file each. A new file with a `METHOD` is found by its name; nothing else needs an edit."""

from __future__ import annotations

from galley.base import Registry
from galley.methods.control.base import ControlMethod

registry: Registry[type[ControlMethod]] = Registry("galley.methods.control", attribute="METHOD", kind="control method")

__all__ = ["registry"]
