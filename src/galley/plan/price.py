"""What a training costs."""

from __future__ import annotations


def cost_of(seconds: tuple[float, float, float], per_hour: float | None) -> tuple[float, float, float] | None:
    """Low, likely and high cost of so many seconds; None without a price, or where the time is unknown.

    Args:
        seconds: low, likely and high.
        per_hour: price of all the hardware.
    """
    if per_hour is None or seconds[1] <= 0:
        return None
    low, likely, high = (per_hour * length / 3600 for length in seconds)
    return low, likely, high
