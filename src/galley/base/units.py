"""Numbers with units, to and from the words that people write."""

from __future__ import annotations

import re

GIB = 1024**3
MIB = 1024**2

_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes from `"8GiB"`, `"8 GB"` or `"1024b"`.

    Raises:
        ValueError: when the text is not a number with a unit of bytes.
    """
    return _parse(text, _BYTES, "a size such as 8GiB")


def parse_count(text: str) -> int:
    """A count from `"15M"`, `"1.5b"` or `"4096"` (thousands, millions, billions).

    Raises:
        ValueError: when the text is not such a count.
    """
    return _parse(text, _COUNTS, "a count such as 15M")


def _parse(text: str, units: dict[str, int], example: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not {example}")
    return round(float(match[1]) * units[match[2].lower()])


def format_bytes(size: float) -> str:
    """`1.5 GiB`, `93 MiB`, `12 KiB`: binary units, three significant digits at most."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if abs(size) >= factor:
            value = size / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size:.0f} B"


def format_count(count: float) -> str:
    """`950`, `12.3k`, `134M`, `1.5B`."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= factor * 0.9995:  # 999.9k is 1M to three digits
            value = count / factor
            return f"{value:.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"
    return f"{count:.0f}"


def format_duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
