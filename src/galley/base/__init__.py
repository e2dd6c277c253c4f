"""Errors with codes, registries, units and the console: what every other package may use."""

from galley.base.errors import ERROR_CODES, ErrorCode, Exit, GalleyError
from galley.base.observer import Fact, Observer, SilentObserver
from galley.base.registry import Registry
from galley.base.units import GIB, MIB, format_bytes, format_count, format_duration, parse_bytes, parse_count

__all__ = [
    "ERROR_CODES",
    "GIB",
    "MIB",
    "ErrorCode",
    "Exit",
    "Fact",
    "GalleyError",
    "Observer",
    "Registry",
    "SilentObserver",
    "format_bytes",
    "format_count",
    "format_duration",
    "parse_bytes",
    "parse_count",
]
