"""Which columns are learned from."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.data.columns import DOCUMENT_NAMES, LABEL_NAMES, PAIRS, TEXT_NAMES, choose_columns

pytestmark = pytest.mark.unit


def choose(columns: list[str], task: str = "chat", **explicit: str) -> dict[str, str]:
    return choose_columns(columns, explicit, task=task, source="faq.csv")


@pytest.mark.parametrize(
    "columns",
    [
        ("question", "answer"),
        ("q", "a"),
        ("prompt", "response"),
        ("instruction", "output"),
        ("input", "output"),
        ("问题", "答案"),
        ("问", "答"),
        ("提问", "回答"),
        ("用户", "助手"),
        ("Frage", "Antwort"),
        ("pregunta", "respuesta"),
        ("Вопрос", "Ответ"),
        ("質問", "回答"),
        ("질문", "답변"),
        ("Question:", "Answer:"),
        ("USER", "Assistant"),
        ("user_message", "assistant_message"),
        ("Câu hỏi", "Câu trả lời"),
        ("question", "Antwort"),
    ],
)
def test_pairs_are_recognised_in_any_order_and_among_others(columns: tuple[str, str]) -> None:
    expected = {"prompt": columns[0], "completion": columns[1]}
    for order in itertools.permutations([*columns, "id", "url"]):
        assert choose(list(order)) == expected


@settings(deadline=None)
@given(st.sampled_from(PAIRS), st.lists(st.text("xyz0", min_size=3, max_size=5), max_size=3, unique=True))
def test_every_known_pair_is_recognised(pair: tuple[str, str], others: list[str]) -> None:
    assert choose([*others, *pair]) == {"prompt": pair[0], "completion": pair[1]}


@pytest.mark.parametrize(
    "columns", [("text", "label"), ("sentence", "class"), ("文本", "标签"), ("review", "sentiment")]
)
def test_classes_are_recognised(columns: tuple[str, str]) -> None:
    assert choose(["id", *columns], "classify") == {"text": columns[0], "label": columns[1]}


def test_the_plainest_name_wins() -> None:
    assert choose(["title", "text", "body", "label", "topic"], "classify") == {"text": "text", "label": "label"}
    with pytest.raises(GalleyError, match="several columns could be meant"):
        choose(["body", "comment", "label"], "classify")


def test_documents_and_completions() -> None:
    assert choose(["id", "text"], "complete") == {"text": "text"}
    assert choose(["anything"], "complete") == {"text": "anything"}
    assert choose(["prompt", "response"], "complete") == {"prompt": "prompt", "completion": "response"}
    assert choose(["text", "x", "y"], "complete", prompt="x", completion="y") == {"prompt": "x", "completion": "y"}


def test_a_system_column_is_taken() -> None:
    assert choose(["question", "answer", "System Prompt"])["system"] == "System Prompt"


def test_explicit_columns_win_and_one_of_them_is_enough() -> None:
    columns = ["question", "answer", "short answer"]
    assert choose(columns, prompt="answer", completion="question") == {"prompt": "answer", "completion": "question"}
    assert choose(columns, completion="short answer") == {"completion": "short answer", "prompt": "question"}


def test_ambiguous_columns_are_listed_with_an_example() -> None:
    with pytest.raises(GalleyError) as caught:
        choose(["question", "answer", "prompt", "response"])
    assert caught.value.code == "data-columns"
    assert all(repr(column) in caught.value.message for column in ("question", "answer", "prompt", "response"))
    assert "columns: {prompt: question, completion: answer}" in caught.value.hint


def test_unknown_columns_are_listed_with_an_example() -> None:
    with pytest.raises(GalleyError) as caught:
        choose(["foo", "bar"])
    assert "'foo', 'bar'" in caught.value.message
    assert "columns: {prompt: foo, completion: bar}" in caught.value.hint
    assert "header: false" in caught.value.hint


@pytest.mark.parametrize(
    ("explicit", "message", "hint"),
    [
        ({"prompt": "quesiton"}, "no column 'quesiton'", "'question'"),
        ({"promt": "question"}, "'promt' is no role", "prompt"),
        ({"label": "question"}, "'label' is no role of the task chat", "completion"),
    ],
)
def test_wrong_names_get_the_nearest(explicit: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(GalleyError, match=message) as caught:
        choose(["question", "answer"], **explicit)
    assert hint in caught.value.hint


def test_known_names_are_unambiguous_by_themselves() -> None:
    for names in (TEXT_NAMES, LABEL_NAMES, DOCUMENT_NAMES):
        assert len(set(names)) == len(names)
    assert all(len(pair) == 2 and pair[0] != pair[1] for pair in PAIRS)
