from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.base import format_bytes, format_count, format_duration, parse_bytes, parse_count

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "value"), [("8GiB", 8 * 2**30), ("8 GB", 8 * 10**9), ("1.5kib", 1536), ("1024b", 1024), (" 2 MiB ", 2**21)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("15M", 15_000_000), ("1.5b", 1_500_000_000), ("4096", 4096), ("3k", 3000)]
)
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "8", "GiB", "-8GiB", "8 parsecs", "1e3 GB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@given(st.floats(1, 1e15))
def test_sizes_and_counts_read_back_to_three_digits(value: float) -> None:
    size = format_bytes(value)
    assert parse_bytes(size) == pytest.approx(value, rel=0.01, abs=0.51)
    assert parse_count(format_count(value)) == pytest.approx(value, rel=0.01, abs=0.51)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.84, "0.8 s"), (42.4, "42 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (273600, "3 d 4 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
