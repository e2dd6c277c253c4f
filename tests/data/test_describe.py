"""The page of `galley data`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.chat_templates import tokenizer_of
from data.reading_helpers import read_data, write_jsonl
from galley.data.describe import describe, percentiles, render
from galley.data.samples import EncodeReport
from galley.data.template import Template

pytestmark = pytest.mark.unit


def rows(count: int) -> list[dict[str, str]]:
    return [{"question": f"What is {number}?", "answer": f"It is {number}."} for number in range(count)]


def test_the_facts_are_those_of_the_data(tmp_path: Path) -> None:
    data = read_data(write_jsonl(tmp_path / "t.jsonl", [*rows(20), *rows(1)]), held_out=0.2)
    facts = describe(data)
    assert (facts.rows, facts.held_out_rows) == (len(data.train), len(data.held_out))
    assert (facts.duplicates, facts.columns) == (1, {"prompt": "question", "completion": "answer"})
    assert facts.tokens is None
    values = facts.to_json()
    assert json.loads(json.dumps(values)) == values
    assert values["characters"]["max"] == data.statistics.longest_characters


def test_the_page_shows_what_is_learned(tmp_path: Path) -> None:
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows(3)))
    page = render(describe(data))
    assert "user: What is 0?\nassistant: «It is 0.»" in page
    assert "3 to train on, 0 held out" in page
    assert "prompt from 'question'" in page
    coloured = render(describe(data), color=True)
    assert "\x1b[32mIt is 0.\x1b[0m" in coloured
    assert "\x1b" not in page


def test_the_template_decides_what_is_shown_as_learned(tmp_path: Path) -> None:
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows(3)))
    page = render(describe(data, template=Template(tokenizer_of("chatml"))))
    assert "What is 0?<|im_end|>\n<|im_start|>assistant\n«It is 0.<|im_end|>»" in page


def test_truncation_is_told(tmp_path: Path) -> None:
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows(3)))
    report = EncodeReport(
        rows_in=3,
        rows_kept=2,
        rows_without_targets=1,
        rows_truncated=2,
        tokens_in=100,
        tokens_cut=30,
        tokens_dropped=10,
        supervised_tokens=20,
        lengths=(10, 50, 60),
    )
    page = render(describe(data, report=report, max_length=40))
    assert "p50 10, p95 50, max 60; 20 learned" in page
    assert "2 rows cut at 40 tokens, 1 row dropped with nothing left to learn; 40 tokens lost" in page


def test_long_examples_are_shortened_and_control_signs_shown(tmp_path: Path) -> None:
    row = {"question": "x" * 5000 + "end", "answer": "a\x1b[31m\x07b"}
    page = render(describe(read_data(write_jsonl(tmp_path / "t.jsonl", [row]))), width=60)
    assert "characters …] " in page
    assert "end" in page
    assert "«a␛[31m␇b»" in page
    assert len(page) < 3000
    assert all(len(line) <= 60 or len(line.split()) < 3 for line in page.split("example 1")[0].splitlines())


def test_classes_are_counted_and_arrays_have_no_examples() -> None:
    facts = describe(read_data("package:digits", "classify", held_out=0.1))
    assert sum(facts.labels.values()) == facts.rows
    assert list(facts.labels) == [str(digit) for digit in range(10)]
    assert facts.examples == ()
    assert "classes" in render(facts)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1))
def test_percentiles_are_lengths_that_occur(sizes: list[int]) -> None:
    found = percentiles(sizes)
    assert set(found) <= set(sizes)
    assert found.p50 <= found.p95 <= found.max == max(sizes)
    assert sum(size <= found.p95 for size in sizes) >= 0.95 * len(sizes)
