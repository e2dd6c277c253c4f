"""Whole decision functions in other programs' forms, one file each, with parity measured."""

from galley.base import Registry
from galley.export.base import Form

registry: Registry[Form] = Registry("galley.export", attribute="FORM", kind="form of export")

__all__ = ["Form", "registry"]
