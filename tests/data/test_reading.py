"""What a user gets for good and bad data: rows, counts, and errors that name file, row, field and what was expected."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.reading_helpers import read_data, turns, write_jsonl
from galley.base import GalleyError
from galley.data import Labelled

pytestmark = pytest.mark.unit

GOOD = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def error_of(path: Path | str, task: str = "chat", **section: Any) -> GalleyError:
    with pytest.raises(GalleyError) as caught:
        read_data(path, task, **section)
    return caught.value


def messages(*turns_: Any) -> dict[str, Any]:
    return {"messages": list(turns_)}


USER = {"role": "user", "content": "2+2?"}


@pytest.mark.parametrize(
    ("row", "field", "expected"),
    [
        ({"message": []}, "messages", "missing"),
        ({"messages": None}, "messages", "found nothing (null)"),
        ({"messages": "hi"}, "messages", "expected a list of turns, found the text"),
        ({"messages": {"role": "user"}}, "messages", "found a mapping with the keys role"),
        (messages("hi"), "messages[0]", "expected a mapping, found the text"),
        (messages(USER, {"content": "4"}), "messages[1].role", "found a turn with the keys content"),
        (messages({"role": "bot", "content": "4"}), "messages[0].role", "expected one of system"),
        (messages({"role": ["user"], "content": "4"}), "messages[0].role", "a list of 1 items"),
        (messages(USER, {"role": "assistant", "text": "4"}), "messages[1].content", "the keys role, text"),
        (messages(USER, {"role": "assistant", "content": 4}), "messages[1].content", "found 4"),
        (
            messages({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}),
            "messages[0].content",
            "parts of type text",
        ),
        (messages(USER, {"role": "assistant", "content": "4", "weight": 0.5}), "messages[1].weight", "expected 0 or 1"),
    ],
)
def test_a_bad_message_row_names_everything(tmp_path: Path, row: dict[str, Any], field: str, expected: str) -> None:
    error = error_of(write_jsonl(tmp_path / "m.jsonl", [GOOD, GOOD, row, GOOD]))
    assert error.code == "data-row"
    assert f"{tmp_path / 'm.jsonl'}, row 3: field '{field}'" in error.message
    assert expected in error.message
    assert json.dumps(row, ensure_ascii=False)[:40] in error.message  # the row itself
    assert "role" in error.hint


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"conversations": [{"from": "alien", "value": "x"}]}, "expected `from` to be one of system, human"),
        ({"conversations": [{"from": "gpt", "value": 4}]}, "expected `value` to be a text, found 4"),
        ({"conversations": [{"from": "gpt", "value": "4", "weight": 2}]}, "expected `weight` to be 0 or 1"),
        ({"conversations": 3}, "expected a list of turns, found 3"),
    ],
)
def test_a_bad_sharegpt_row_names_everything(tmp_path: Path, row: dict[str, Any], expected: str) -> None:
    good = {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}
    error = error_of(write_jsonl(tmp_path / "s.jsonl", [good, row]))
    assert (error.code, "row 2" in error.message, expected in error.message) == ("data-row", True, True), error


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"instruction": ["x"], "output": "4"}], "field 'instruction': expected a text, found a list of 1 items"),
        ([{"instruction": "x", "output": "4", "history": [["a"]]}], "expected a list of [question, answer] pairs"),
        ([{"prompt": "x", "completion": {"a": 1}}], "field 'completion': expected a text, found a mapping"),
        ([{"prompt": "x", "completion": [USER]}], "field 'prompt': expected a list of messages"),
        ([{"question": "x", "answer": ["a"]}], "field 'answer': expected a text, found a list of 1 items"),
    ],
)
def test_bad_cells_are_named(tmp_path: Path, rows: list[dict[str, Any]], expected: str) -> None:
    error = error_of(write_jsonl(tmp_path / "t.jsonl", rows))
    assert (error.code, expected in error.message) == ("data-row", True), error


@pytest.mark.parametrize(
    ("content", "row", "expected"),
    [
        (
            "question,answer\nq,a\nq,a,b\n",
            3,
            "field 3 has no column: expected 2 fields, found 3; the row begins on line 3",
        ),
        (
            "question,answer,c\nq,a,c\nq,a\n",
            3,
            "field 'c' is missing: expected 3 fields (question, answer, c), found 2",
        ),
        ('question,answer\n"a\nb",a\nx\n', 3, "the row begins on line 4"),
        ('question,answer\nq,a\nq,"open\nr,b\n', 3, "the quotes do not match"),
        ('question,answer\nq,a\nq,"shut"x\n', 3, "the quotes do not match"),
        ('question;answer\nq;a\nq;"shut"x\n', 3, "the quotes do not match"),
    ],
)
def test_ragged_rows_are_shown(tmp_path: Path, content: str, row: int, expected: str) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(content, encoding="utf-8")
    error = error_of(path)
    assert error.code == "data-row"
    assert f"faq.csv, row {row}: " in error.message
    assert expected in error.message
    assert "the row: " in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("name", "content", "code", "expected"),
    [
        ("a.csv", "", "data-empty", "the file is empty"),
        ("a.csv", "question,answer\n", "data-empty", "no rows"),
        ("a.csv", "question,answer\n,\n ,\n", "data-empty", "all 2 rows are without a question, an answer or a text"),
        ("a.csv", "question,question\nq,a\n", "data-columns", "two columns are named 'question'"),
        ("a.csv", "question,,answer\nq,x,a\n", "data-columns", "column 2 has no name"),
        ("a.jsonl", "", "data-empty", "the file is empty"),
        (
            "a.jsonl",
            '{"question": "q", "answer": "a"}\n{"question": \n',
            "data-row",
            "row 2: this line is not valid JSON",
        ),
        ("a.jsonl", '{"question": "q", "answer": "a"}\n[1]\n', "data-row", "row 2: expected an object, found a list"),
        ("a.json", '[{"question": "q" "answer": "a"}]', "data-format", "line 1, column 19"),
        ("a.json", '[{"question": "q", "answer": "a"}, 3]', "data-row", "row 2: expected an object, found 3"),
        ("a.json", "[]", "data-empty", "no rows"),
        ("a.json", '"text"', "data-format", "found the text"),
        ("a.json", '{"a": [{"x": 1}], "b": [{"x": 1}]}', "data-format", "several lists: a, b"),
        ("a.json", "[" * 100_000, "data-format", "nested too deeply"),
        ("a.yml", "a: [", "data-format", "not valid YAML"),
        ("a.yml", ":", "data-columns", "it has the columns 'None'"),
        ("a.yml", "1: [{2: x}]\n3: [{4: y}]", "data-format", "several lists: 1, 3"),
        ("a.txt", "  \n", "data-empty", "all 1 rows"),
        ("a.xlsx", "no zip", "data-format", "not a spreadsheet"),
        ("a.parquet", "no parquet", "data-format", "not a Parquet file"),
        ("a.npz", "no zip", "data-format", "arrays of numbers"),
        ("a.csv.gz", "no gzip", "data-format", "not a gzip file"),
        ("a.xls", "x", "data-format", ".xls are not supported"),
        ("a.pdf", "x", "data-format", ".pdf are not supported"),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path: Path, name: str, content: str, code: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    task = {".txt": "complete", ".npz": "classify"}.get(path.suffix, "chat")
    error = error_of(path, task)
    assert (error.code, expected in error.message, name in error.message) == (code, True, True), error.render()


def test_binary_rubbish_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(bytes(range(256)) * 40)
    assert error_of(path).code in {"data-encoding", "data-format", "data-columns", "data-row"}


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.text(st.sampled_from(list('{}[]",:;\n\r\t\\qa01 é问')), max_size=60).map(str.encode),
    ),
    name=st.sampled_from(["a.csv", "a.tsv", "a.json", "a.jsonl", "a.txt", "a.yml", "a.csv.gz"]),
    task=st.sampled_from(["chat", "complete", "classify"]),
)
def test_whatever_is_in_a_file_it_is_read_or_is_one_clear_error(
    tmp_path: Path, content: bytes, name: str, task: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with contextlib.suppress(GalleyError):
        assert read_data(path, task).train


def test_missing_files_get_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "questions.csv").write_text("question,answer\nq,a\n")
    error = error_of(tmp_path / "question.csv")
    assert error.code == "data-not-found"
    assert "questions.csv" in error.hint
    assert "does not exist" in error_of(tmp_path / "no" / "x.csv").hint
    assert (
        "hub:someone/some-data" in error_of("someone/some-data").hint or "folder" in error_of("someone/some-data").hint
    )
    assert error_of(tmp_path / "*.json").code == "data-not-found"
    (tmp_path / "empty").mkdir()
    assert "no data files" in error_of(tmp_path / "empty").message


def test_globs_and_folders_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text(f"question,answer\n{name}?,{name}\n")
    (tmp_path / "README.md").write_text("What this is.")
    (tmp_path / ".hidden.csv").write_text("nonsense")
    for path in (tmp_path, tmp_path / "*.csv"):
        assert [turns(row)[0][1] for row in read_data(path).train] == ["a?", "b?"]


def test_rows_without_anything_to_learn_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text("question,answer\nq1,a1\nq2,\n,a3\n , \nq5,a5\n")
    data = read_data(path)
    assert [turns(row)[0][1] for row in data.train] == ["q1", "q5"]
    assert data.statistics.empty == 3
    assert any("nothing to learn: 3 (" in note and "row 3; " in note for note in data.notes)


def test_untrained_conversations_are_dropped(tmp_path: Path) -> None:
    silent = {"messages": [USER, {"role": "assistant", "content": "4", "weight": 0}]}
    data = read_data(write_jsonl(tmp_path / "m.jsonl", [GOOD, silent, messages(USER), messages()]))
    assert (data.statistics.rows, data.statistics.empty) == (1, 3)


def test_a_system_message_is_put_first_unless_the_row_has_one(tmp_path: Path) -> None:
    own = messages({"role": "system", "content": "Own."}, *GOOD["messages"])
    data = read_data(write_jsonl(tmp_path / "m.jsonl", [GOOD, own]), system="Be brief.")
    assert [turns(row)[0][1] for row in data.train] == ["Be brief.", "Own."]
    assert any("keep their own system message: 1" in note for note in data.notes)
    (tmp_path / "t.txt").write_text("text")
    assert "system" in error_of(tmp_path / "t.txt", "complete", system="Be brief.").message


def test_rows_limits_in_order(tmp_path: Path) -> None:
    rows = [{"question": f"q{number}", "answer": "a"} for number in range(20)]
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows), most=5)
    assert [turns(row)[0][1] for row in data.train] == [f"q{number}" for number in range(5)]


def test_numbers_and_nothing_are_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": 1, "answer": 2.0},
        {"question": True, "answer": 0.5},
        {"question": "q", "answer": None},
    ]
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows))
    assert [[text for _, text, _ in turns(row)] for row in data.train] == [["1", "2"], ["true", "0.5"]]
    assert data.statistics.empty == 1


def test_labels_are_sorted_as_numbers_and_one_class_is_refused(tmp_path: Path) -> None:
    rows = [{"text": f"t{number}", "label": number} for number in (10, 9, 1)]
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows), "classify")
    assert data.statistics.labels == ("1", "9", "10")
    assert isinstance(data.train[0], Labelled)
    assert error_of(write_jsonl(tmp_path / "t.jsonl", rows[:1] * 3), "classify").code == "data-columns"


def test_the_statistics_add_up(tmp_path: Path) -> None:
    rows = [{"question": "ab", "answer": "c" * number} for number in range(1, 31)]
    data = read_data(write_jsonl(tmp_path / "t.jsonl", rows), held_out=0.2)
    facts = data.statistics
    assert (facts.rows, facts.held_out_rows) == (len(data.train), len(data.held_out))
    assert facts.rows + facts.held_out_rows == 30
    sizes = [sum(len(text) for _, text, _ in turns(row)) for row in data.train]
    assert (facts.characters, facts.longest_characters) == (sum(sizes), max(sizes))
    assert facts.example_kind == "conversation"


def test_options_are_checked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("question,answer\nq,a\n")
    assert error_of(tmp_path / "t.csv", options={"delimiter": ",,"}).code == "data-options"
    assert error_of(tmp_path / "t.csv", options={"encoding": 3}).code == "data-options"
    assert error_of(tmp_path / "t.csv", options={"encoding": "martian"}).code == "data-encoding"
    assert "delimiter" in error_of(tmp_path / "t.csv", options={"sheet": "x"}).hint
    assert error_of(tmp_path / "t.csv", format="tabel").code == "name-unknown"


@pytest.mark.parametrize("words", ["What is a keel? " * 400, "x" * 300, "", "  ", "a\0b"])
def test_words_that_are_no_path(words: str) -> None:
    with pytest.raises(GalleyError) as caught:
        read_data(words)
    assert caught.value.code == "data-not-found"
    assert len(caught.value.render()) < 300


def test_a_file_without_a_kind_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("q,a\n")
    with pytest.raises(GalleyError, match="its name does not end in a kind of file") as caught:
        read_data(tmp_path / "rows")
    assert ".csv" in caught.value.hint


def test_binary_cells_that_are_no_text_name_their_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"question": [b"q", b"\xff\xfe"], "answer": [b"a", b"b"]}), path)
    with pytest.raises(GalleyError) as caught:
        read_data(path)
    assert caught.value.code == "data-row"
    assert f"{path}, row 2: field 'question': expected a text, found 2 bytes that are not UTF-8" in caught.value.message


def test_the_share_of_wide_characters_is_seen(tmp_path: Path) -> None:
    rows = [{"question": str(number), "answer": "你好世界"} for number in range(10, 40)]
    facts = read_data(write_jsonl(tmp_path / "t.jsonl", rows)).statistics
    assert facts.wide_share == pytest.approx(4 / 6)
