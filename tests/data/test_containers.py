"""Whatever wrote a table, in whatever delimiter and encoding, it reads back equal."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.data.containers import open_table
from galley.data.source import file_suffix

pytestmark = pytest.mark.unit

HEADERS = ["question", "answer", "id", "Source text", "问题", "réponse"]
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

cells = st.text(
    st.one_of(
        st.sampled_from(list(",;\t|\"'\r\n\\ abc")), st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
    ),
    max_size=12,
)


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[str] = cells) -> tuple[list[str], list[list[str]]]:
    header = draw(st.lists(st.sampled_from(HEADERS), min_size=2, max_size=4, unique=True))
    row = st.lists(values, min_size=len(header), max_size=len(header))
    return header, draw(st.lists(row, min_size=1, max_size=8))


def read(path: Path, **options: object) -> tuple[list[str], list[list[object]]]:
    table = open_table(path, file_suffix(path), options)
    records = list(table.records())
    return list(table.columns), [list(record.fields.values()) for record in records]


def write_csv(path: Path, header: list[str], rows: list[list[str]], delimiter: str, encoding: str) -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)


@QUICK
@given(table=tables(), delimiter=st.sampled_from(",;\t|"), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_delimited_text_reads_back_equal(
    tmp_path: Path, table: tuple[list[str], list[list[str]]], delimiter: str, encoding: str
) -> None:
    header, rows = table
    path = tmp_path / "table.csv"
    write_csv(path, header, rows, delimiter, encoding)
    assert read(path) == (header, rows)


@QUICK
@given(table=tables(), quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC, csv.QUOTE_MINIMAL]))
def test_any_quoting_and_line_end_read_back_equal(
    tmp_path: Path, table: tuple[list[str], list[list[str]]], quoting: int
) -> None:
    header, rows = table[0], [[cell.replace("\r", " ") for cell in row] for row in table[1]]  # csv leaves it unquoted
    path = tmp_path / "table.csv.gz"
    with gzip.open(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=quoting, lineterminator="\n")  # type: ignore[arg-type]
        writer.writerow(header)
        writer.writerows(rows)
    assert read(path) == (header, rows)


printable = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)


@QUICK
@given(table=tables(printable))
def test_spreadsheets_read_back_equal(tmp_path: Path, table: tuple[list[str], list[list[str]]]) -> None:
    from openpyxl import Workbook

    header, rows = table
    book = Workbook(write_only=True)
    book.create_sheet("notes")
    sheet = book.create_sheet("data")
    sheet.append(header)
    for row in rows:
        sheet.append(["'" + cell if cell.startswith("=") else cell for cell in row])  # "=" would make a formula
    path = tmp_path / "table.xlsx"
    book.save(path)
    expected = [["'" + cell if cell.startswith("=") else cell for cell in row] for row in rows if any(row)]
    columns, found = read(path)
    assert columns == header
    assert [["" if cell is None else cell for cell in row] for row in found] == expected


@QUICK
@given(table=tables())
def test_parquet_and_json_read_back_equal(tmp_path: Path, table: tuple[list[str], list[list[str]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    header, rows = table
    objects = [dict(zip(header, row, strict=True)) for row in rows]
    columns = list(zip(*rows, strict=True))
    pq.write_table(
        pa.table({name: list(values) for name, values in zip(header, columns, strict=True)}), tmp_path / "t.parquet"
    )
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in objects), encoding="utf-8")
    (tmp_path / "array.json").write_text(json.dumps(objects, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "lines.json").write_text("\n".join(json.dumps(row) for row in objects), encoding="utf-8")
    (tmp_path / "held.json").write_text(json.dumps({"version": 1, "data": objects}, indent=1), encoding="utf-8")
    for name in ("t.parquet", "t.jsonl", "array.json", "lines.json", "held.json"):
        assert read(tmp_path / name)[1] == rows, name


CHINESE = [
    ["什么是人工智能？", "人工智能是工程和科学的分支，致力于构建具有思维的机器。"],
    ["你是谁", "我是一个机器人。"],
]
WESTERN = [
    ["Wie heißt du?", "Ich heiße Jürgen, schön dich zu sehen."],
    ["Où est le café ?", "C'est à côté de l'école."],
]
RUSSIAN = [["Как тебя зовут?", "Меня зовут Иван, очень приятно познакомиться с вами."]] * 3
KOREAN = [["안녕하세요 이름이 뭐예요", "제 이름은 로봇입니다 만나서 반갑습니다"]] * 3


@pytest.mark.parametrize(
    ("encoding", "rows"),
    [
        ("gb18030", CHINESE),
        ("gbk", CHINESE),
        ("cp1252", WESTERN),
        ("latin-1", WESTERN),
        ("utf-16-le", WESTERN),
        ("utf-16-be", CHINESE),
        ("utf-32", CHINESE),
        ("cp1251", RUSSIAN),
        ("euc-kr", KOREAN),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_other_encodings_are_recognised(tmp_path: Path, encoding: str, rows: list[list[str]], delimiter: str) -> None:
    path = tmp_path / "table.csv"
    write_csv(path, ["question", "answer"], rows, delimiter, encoding)
    assert read(path) == (["question", "answer"], rows)


def test_an_explicit_encoding_wins(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_csv(path, ["question", "answer"], RUSSIAN, ",", "koi8-r")
    assert read(path, encoding="koi8-r")[1] == RUSSIAN
    with pytest.raises(GalleyError, match="cannot be read as utf-8") as caught:
        read(path, encoding="utf-8")
    assert caught.value.code == "data-encoding"


def test_header_white_space_empty_rows_and_empty_columns(tmp_path: Path) -> None:
    path = tmp_path / "messy.csv"
    path.write_bytes(b'\xef\xbb\xbf question ,\tanswer,,\r\n\r\nq1,a1,,\r\n,,,\r\n"q\r\n2","a ""2""",,\r\n\r\n')
    table = open_table(path, "csv", {})
    assert table.columns == ("question", "answer")
    records = list(table.records())
    assert [list(record.fields.values()) for record in records] == [["q1", "a1"], ["", ""], ["q\r\n2", 'a "2"']]
    assert [record.number for record in records] == [3, 4, 5]


def test_a_table_without_quoting_rules_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plain.tsv"
    path.write_text('question\tanswer\nsay "hi\tno\n"quoted\tyes\n', encoding="utf-8")
    assert read(path)[1] == [['say "hi', "no"], ['"quoted', "yes"]]


def test_space_after_the_comma_and_backslash_quotes(tmp_path: Path) -> None:
    path = tmp_path / "spaced.csv"
    path.write_text('question, answer\nq, "a, b"\nr, "c, d"\n', encoding="utf-8")
    assert read(path)[1] == [["q", "a, b"], ["r", "c, d"]]
    path.write_text('question,answer\nq,"say \\"a, b\\" now"\n', encoding="utf-8")
    assert read(path)[1] == [["q", 'say "a, b" now']]


def test_no_header(tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("q,a\nr,b\n", encoding="utf-8")
    assert read(path, header=False) == (["column_1", "column_2"], [["q", "a"], ["r", "b"]])


def test_sheets_are_chosen_and_numbered_as_shown(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    first = book.active
    assert first is not None
    first.title = "empty"
    for title, answer in (("one", 1.0), ("two", True)):
        sheet = book.create_sheet(title)
        sheet["B3"], sheet["C3"] = "question", "answer"
        sheet["B5"], sheet["C5"] = "q", answer
    path = tmp_path / "book.xlsx"
    book.save(path)
    table = open_table(path, "xlsx", {})
    assert table.columns == ("question", "answer")
    assert [(record.number, record.fields["question"]) for record in table.records()] == [(5, "q")]
    assert "'two'" in table.notes[0]
    assert next(open_table(path, "xlsx", {"sheet": "two"}).records()).fields["answer"] is True
    with pytest.raises(GalleyError, match="no sheet 'three'"):
        open_table(path, "xlsx", {"sheet": "three"})


@pytest.mark.parametrize("value", ["\n", '"', "\r", "\0", "\\", ";;", ""])
def test_a_delimiter_divides_fields(value: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("q;a\nr;b\n", encoding="utf-8")
    with pytest.raises(GalleyError, match=r"data\.options\.delimiter") as caught:
        read(path, delimiter=value)
    assert (caught.value.code, caught.value.hint) == ("data-options", 'for example delimiter: ";"')


@pytest.mark.parametrize("value", ["idna", "punycode", "unicode_escape", "raw-unicode-escape", "utf-7", "a\0b"])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.yaml"])
def test_an_encoding_is_one_of_files(value: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"question": "q", "answer": "a"}\n', encoding="utf-8")
    with pytest.raises(GalleyError, match=r"data\.options\.encoding") as caught:
        read(tmp_path / name, encoding=value)
    assert caught.value.code == "data-options"


@pytest.mark.parametrize(("key", "example"), [("encoding", "cp1252"), ("delimiter", '";"'), ("header", "true")])
def test_an_example_of_a_setting_is_one_that_works(key: str, example: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("q;a\nr;b\n", encoding="utf-8")
    with pytest.raises(GalleyError) as caught:
        read(path, **{key: 5})
    assert caught.value.hint == f"for example {key}: {example}"


NUL_FILES = [b"question,answer\nwhat\0,that\n", b"\0" * 5000, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 9]
LATE_NUL = b"a,b\n" * 70_000 + b"c,\0\n"
"""Found where the encoding is guessed; only the start of a file is looked at when its encoding is named."""


@pytest.mark.parametrize(
    ("content", "options"),
    [*((content, options) for content in NUL_FILES for options in ({}, {"encoding": "utf-8"})), (LATE_NUL, {})],
)
def test_nul_bytes_are_told_as_what_they_are(content: bytes, options: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(GalleyError) as caught:
        read(path, **options)
    said = caught.value.render()
    assert caught.value.code == "data-encoding"
    assert len(said) < 400
    assert "\0" not in said
    assert "cp1252" not in said
    assert "NUL bytes, is it a binary file?" in said or "cannot be read as utf-8" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "q", "answer": ' + "7" * 5000 + "}", "thousands of digits"),
        ('{"question": "\\ud800 x", "answer": "a"}', "'question'"),
        ('{"question": ["a", {"b": "\\uDFFF"}], "answer": "a"}', "'question'"),
        ('{"question": "q", "\\ud800": "a"}', "half a character"),
    ],
)
def test_a_line_that_json_allows_but_nothing_can_hold(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    good = '{"question": "\\ud83d\\ude00", "answer": "a"}'
    path.write_text(f"{good}\n{line}\n", encoding="utf-8")
    with pytest.raises(GalleyError) as caught:
        read(path)
    said = caught.value.render()
    assert (caught.value.code, f"{path}, row 2: " in said) == ("data-row", True)
    assert words.replace("'", '"') in said or words in said
    said.encode()
    path.write_text(f"[{good}, {line}]", encoding="utf-8")
    with pytest.raises(GalleyError, match=r"t\.jsonl") as caught:
        read(path)
    assert caught.value.code in ("data-row", "data-format")
    caught.value.render().encode()
    path.write_text(good + "\n" + good, encoding="utf-8")
    assert read(path)[1] == [["😀", "a"]] * 2


def test_binary_cells_of_parquet_are_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    columns = {"question": pa.array(["é".encode(), b"q"], pa.binary()), "answer": pa.array([b"a", b"b"], pa.binary())}
    turns = pa.array(
        [[{"role": "user", "content": b"hi"}], None], pa.list_(pa.struct({"role": pa.string(), "content": pa.binary()}))
    )
    pq.write_table(pa.table({**columns, "turns": turns}), path)
    assert read(path)[1] == [["é", "a", [{"role": "user", "content": "hi"}]], ["q", "b", None]]
