"""Every format is recognised by itself and gives the examples that its data says."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.reading_helpers import read_data, turns, write_jsonl
from galley.base import GalleyError
from galley.data import FORMATS, Completion, Conversation, Dataset, Document, Labelled
from galley.data.source import Request
from galley.data.sources import open_sources

pytestmark = pytest.mark.unit

QA = [("user", "2+2?", True), ("assistant", "4", True)]


def _messages(folder: Path) -> str:
    rows = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}] * 2
    return str(write_jsonl(folder / "m.jsonl", rows))


def _sharegpt(folder: Path) -> str:
    rows = [{"id": 1, "conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}] * 2
    return str(write_jsonl(folder / "s.jsonl", rows))


def _alpaca(folder: Path) -> str:
    return str(write_jsonl(folder / "a.jsonl", [{"instruction": "2+2?", "input": "", "output": "4"}] * 2))


def _prompt_completion(folder: Path) -> str:
    return str(write_jsonl(folder / "p.jsonl", [{"prompt": "2+2?", "completion": "4"}] * 2))


def _table(folder: Path) -> str:
    (folder / "t.csv").write_text("问题,答案\n2+2?,4\n2+2?,4\n", encoding="utf-8")
    return str(folder / "t.csv")


def _text(folder: Path) -> str:
    (folder / "book.txt").write_text("Call me Ishmael.\n\nSome years ago.\n", encoding="utf-8")
    return str(folder / "book.txt")


def _arrays(folder: Path) -> str:
    np.savez(folder / "x.npz", x=np.full((4, 6, 5), 255, np.uint8), y=np.array([0, 1, 0, 1]))
    return str(folder / "x.npz")


def _images(folder: Path) -> str:
    from PIL import Image

    for label in ("cat", "dog"):
        (folder / "images" / label).mkdir(parents=True)
        Image.new("RGB", (5, 6), (255, 0, 0)).save(folder / "images" / label / "1.png")
    return str(folder / "images")


def _chatterbot(folder: Path) -> str:
    (folder / "c.yml").write_text("categories:\n- maths\nconversations:\n- - 2+2?\n  - 4\n", encoding="utf-8")
    return str(folder / "c.yml")


CASES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "messages": ("chat", _messages),
    "sharegpt": ("chat", _sharegpt),
    "alpaca": ("chat", _alpaca),
    "prompt-completion": ("chat", _prompt_completion),
    "table": ("chat", _table),
    "text": ("complete", _text),
    "arrays": ("classify", _arrays),
    "images": ("classify", _images),
    "digits": ("classify", lambda folder: "package:digits"),
    "chatterbot": ("chat", _chatterbot),
    "reasoning-gym": ("chat", lambda folder: "reasoning-gym:leg_counting"),
}


def make(name: str, folder: Path) -> tuple[str, str, dict[str, Any]]:
    """Task, path and options of a case."""
    task, write = CASES[name]
    options = {"size": 5} if name == "reasoning-gym" else {}
    return task, write(folder), options


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize("name", FORMATS.own_names())
class TestEveryFormat:
    def test_it_is_recognised_and_gives_examples_of_its_task(self, name: str, tmp_path: Path) -> None:
        task, path, options = make(name, tmp_path)
        data = read_data(path, task, options=options)
        assert data.format == name
        assert data.statistics.rows == len(data.train) > 0
        kinds = {"chat": (Conversation,), "complete": (Document, Completion), "classify": (Labelled,)}[task]
        assert all(isinstance(example, kinds) for example in data.train)

    def test_naming_it_gives_the_same_rows(self, name: str, tmp_path: Path) -> None:
        task, path, options = make(name, tmp_path)
        guessed, named = (read_data(path, task, options=options, format=format_) for format_ in (None, name))
        assert [str(row) for row in guessed.train] == [str(row) for row in named.train]

    def test_only_it_is_sure(self, name: str, tmp_path: Path) -> None:
        task, path, options = make(name, tmp_path)
        source = open_sources(path, options=options)[0]
        sure = {other: FORMATS.get(other).detect(source, task) for other in FORMATS.own_names()}
        assert max(sure, key=lambda other: sure[other]) == name
        assert sorted(sure.values())[-2] < sure[name]

    def test_reading_twice_gives_the_same(self, name: str, tmp_path: Path) -> None:
        task, path, options = make(name, tmp_path)
        entry, source = FORMATS.get(name), open_sources(path, options=options)[0]
        first, again = (list(entry.rows(source, Request(task))) for _ in range(2))
        assert [str(row) for row in first] == [str(row) for row in again]
        numbers = [row.number for row in first]
        assert numbers == sorted(numbers)
        assert numbers[0] >= 1

    def test_another_task_is_refused_with_the_right_one(self, name: str, tmp_path: Path) -> None:
        _, path, options = make(name, tmp_path)
        entry = FORMATS.get(name)
        for task in {"chat", "complete", "classify"} - set(entry.tasks):
            with pytest.raises(GalleyError) as caught:
                read_data(path, task, options=options, format=name)
            assert caught.value.code == "data-format"
            assert entry.tasks[0] in caught.value.hint

    def test_naming_it_for_other_data_is_one_clear_error_if_it_cannot_be_read(self, name: str, tmp_path: Path) -> None:
        for other in CASES:
            (tmp_path / other).mkdir()
            task, path, options = make(other, tmp_path / other)
            if task in FORMATS.get(name).tasks:
                with contextlib.suppress(GalleyError):
                    assert read_data(path, task, options=options, format=name).train

    def test_unknown_options_are_refused(self, name: str, tmp_path: Path) -> None:
        task, path, options = make(name, tmp_path)
        with pytest.raises(GalleyError) as caught:
            read_data(path, task, options=options | {"no_such_option": 1}, format=name)
        assert caught.value.code == "data-options"
        assert "no_such_option" in caught.value.message


def test_messages_parts_tools_and_weights(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    conversation = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "2?"}]},
        {"role": "assistant", "content": "five", "weight": 0},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        {"role": "assistant", "content": "4", "weight": 1},
    ]
    data = read_data(write_jsonl(tmp_path / "m.jsonl", [{"messages": conversation}]))
    assert turns(data.train[0]) == [
        ("system", "Be brief.", True),
        ("user", "2+2?", True),
        ("assistant", "five", False),
        ("assistant", '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>', True),
        ("tool", "4", True),
        ("assistant", "4", True),
    ]
    assert any("tools, written as <tool_call>JSON</tool_call>: 1" in note for note in data.notes)


def test_messages_under_another_column(tmp_path: Path) -> None:
    rows = [{"x": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    path = write_jsonl(tmp_path / "m.jsonl", rows)
    assert read_data(path).columns == {"messages": "x"}
    assert turns(read_data(path, columns={"messages": "x"}).train[0]) == QA


def test_preference_data_is_not_taken_for_conversations(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    with pytest.raises(GalleyError, match=r"several columns hold turns \(chosen, rejected\)"):
        read_data(write_jsonl(tmp_path / "p.jsonl", [{"chosen": said, "rejected": said}]))


def test_columns_that_nothing_reads_are_said(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "m.jsonl", [{"messages": [{"role": "assistant", "content": "4"}], "score": 1}])
    assert read_data(path).notes == (f"{path}: columns that are not used: score",)


def test_one_conversation_in_one_json_object(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}')
    assert turns(read_data(path).train[0]) == QA


def test_sharegpt_roles_and_system(tmp_path: Path) -> None:
    said = [("human", "2+2?"), ("function_call", "{}"), ("observation", "4"), ("GPT", "4")]
    row = {"system": "Be brief.", "conversations": [{"from": role, "value": text} for role, text in said]}
    roles = [role for role, _, _ in turns(read_data(write_jsonl(tmp_path / "s.jsonl", [row])).train[0])]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


def test_alpaca_input_history_and_completion(tmp_path: Path) -> None:
    row = {"instruction": "Add.", "input": "2+2", "output": "4", "history": [["1+1?", "2"]], "system": "Be brief."}
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    assert [text for _, text, _ in turns(read_data(path).train[0])] == ["Be brief.", "1+1?", "2", "Add.\n\n2+2", "4"]
    assert read_data(path, "complete").train[0] == Completion("Add.\n\n2+2", "4")


def test_prompt_completion_of_messages_learns_the_completion_only(tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    prompt.append({"role": "user", "content": "2+2?"})
    row = {"prompt": prompt, "completion": [{"role": "assistant", "content": "4"}]}
    found = turns(read_data(write_jsonl(tmp_path / "p.jsonl", [row])).train[0])
    assert [learned for role, _, learned in found if role == "assistant"] == [False, True]


def test_prompt_completion_to_complete(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [{"prompt": "2+2=", "completion": "4"}])
    assert read_data(path, "complete").train == [Completion("2+2=", "4")]


def test_text_files_are_documents_and_one_book_is_read_in_sections(tmp_path: Path) -> None:
    folder = tmp_path / "speeches"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.txt").write_text(f"Speech {number}.\n\n" * 2000, encoding="utf-8")
    assert len(read_data(folder, "complete").train) == 12
    book = tmp_path / "book.md"
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 50 for number in range(400)) + "\n\n"
    book.write_text(text, encoding="utf-8")
    data = read_data(book, "complete")
    assert len(data.train) > 10
    assert "".join(row.text for row in data.train if isinstance(row, Document)) == text  # conservation
    assert any("read as" in note for note in data.notes)
    assert len(read_data(book, "complete", options={"document": "file"}).train) == 1
    assert len(read_data(book, "complete", options={"document": "paragraph"}).train) == 400


def test_text_column_is_documents(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": "a b", "id": 1}, {"text": "c", "id": 2}])
    data = read_data(path, "complete")
    assert (data.format, data.train) == ("text", [Document("a b"), Document("c")])


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 6, 5, 3), (4, 1, 6, 5), (4, 30)])
def test_arrays_keep_rows_and_put_channels_first(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=x, labels=np.array([["a"], ["b"], ["a"], ["b"]]), extra=np.zeros(3))
    data = read_data(tmp_path / "x.npz", "classify")
    expected = {3: x[:, None] if x.ndim == 3 else x, 4: np.moveaxis(x, -1, 1) if shape[-1] == 3 else x, 2: x}[x.ndim]
    found = np.stack([row.input for row in data.train if isinstance(row, Labelled)])
    np.testing.assert_allclose(found, expected / 255, rtol=1e-6)
    assert data.statistics.labels == ("a", "b")
    assert any("extra" in note for note in data.notes)


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    with pytest.raises(GalleyError, match="one label a row"):
        read_data(tmp_path / "x.npz", "classify")
    np.savez(tmp_path / "x.npz", first=np.zeros((3, 2)), second=np.zeros(3))
    with pytest.raises(GalleyError, match="first, second"):
        read_data(tmp_path / "x.npz", "classify")
    np.savez(tmp_path / "x.npz", x=np.array([{}, {}], dtype=object), y=np.zeros(2))
    with pytest.raises(GalleyError, match="arrays of numbers"):
        read_data(tmp_path / "x.npz", "classify")


def test_images_of_other_sizes_need_a_size(tmp_path: Path) -> None:
    from PIL import Image

    for label, size in (("cat", (5, 6)), ("dog", (7, 7))):
        (tmp_path / label).mkdir()
        Image.new("L", size, 128).save(tmp_path / label / "1.png")
    with pytest.raises(GalleyError, match=r"expected 5 x 6 pixels.*found 7 x 7"):
        read_data(tmp_path, "classify")
    row = read_data(tmp_path, "classify", options={"size": 4}).train[0]
    assert isinstance(row, Labelled)
    assert not isinstance(row.input, str)
    assert row.input.shape == (1, 4, 4)
    assert np.allclose(row.input, 128 / 255)


def test_digits_equal_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = read_data("package:digits", "classify")
    found = np.stack([row.input for row in data.train if isinstance(row, Labelled)])
    np.testing.assert_array_equal(found[:, 0] * 16, digits.images.astype(np.float32))
    assert [row.label for row in data.train if isinstance(row, Labelled)] == [str(label) for label in digits.target]


def test_chatterbot_turns_and_answers(tmp_path: Path) -> None:
    lines = "conversations:\n- - a\n  - b\n  - c\n"
    (tmp_path / "turns.yml").write_text(f"categories:\n- conversations\n{lines}")
    (tmp_path / "answers.yml").write_text(f"categories:\n- ai\n{lines}")
    assert [text for _, text, _ in turns(read_data(tmp_path / "turns.yml").train[0])] == ["a", "b", "c"]
    answers = read_data(tmp_path / "answers.yml").train
    assert [[text for _, text, _ in turns(row)] for row in answers] == [["a", "b"], ["a", "c"]]


def _modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_plain_files_are_read_without_heavy_imports(tmp_path: Path) -> None:
    paths = [_table(tmp_path), _messages(tmp_path)]
    code = (
        "from galley.data import read\nfrom galley.recipe.schema import DataSection, EvaluateSection\n"
        f"for path in {paths!r}: read(DataSection(path=path), task='chat', evaluate=EvaluateSection())"
    )
    heavy = {"numpy", "pandas", "pyarrow", "torch", "transformers", "openpyxl", "datasets", "charset_normalizer"}
    assert not heavy & _modules_after(code)


def test_datasets_are_of_one_format(tmp_path: Path) -> None:
    _table(tmp_path)
    _messages(tmp_path)
    with pytest.raises(GalleyError, match="of the format"):
        read_data(tmp_path)
    assert isinstance(read_data(tmp_path / "*.csv"), Dataset)
