"""What each scorer counts as right; every one of them through one conformance test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from galley.base import GalleyError
from galley.data import Completion, Conversation, Dataset, DataStatistics, Document, Example, Labelled, Message, Scorer
from galley.evaluate.choice import choose_scorer
from galley.evaluate.scorers import SCORERS, Observed

pytestmark = pytest.mark.unit


def _chat(answer: str) -> Conversation:
    return Conversation(
        (Message("user", "q"), Message("assistant", "no"), Message("user", "r"), Message("assistant", answer))
    )


def _dataset(examples: Sequence[Example], scorer: Scorer | None = None, kind: str = "conversation") -> Dataset:
    facts = DataStatistics(rows=len(examples), held_out_rows=0, characters=0, longest_characters=0, example_kind=kind)
    return Dataset(examples, examples, facts, "", "table", scorer=scorer)


@pytest.mark.parametrize("name", SCORERS.names())
def test_every_scorer_rates_a_right_row_above_a_wrong_one(name: str) -> None:
    scorer = SCORERS.get(name)
    example: Example = Labelled("a text", "cat") if scorer.needs == "classes" else _chat("cat")

    def own(answer: str, _example: Any) -> float:
        return float(answer == "cat")

    right = scorer.score(Observed("cat", loss=0.1), example, own)
    wrong = scorer.score(Observed("dog", loss=2.0), example, own)
    assert (right > wrong) == scorer.higher_is_better
    assert right != wrong
    assert scorer.metric


@pytest.mark.parametrize(
    ("answer", "expected", "exact", "contains"),
    [
        ("Paris", "paris", 1, 1),
        (" 'Paris.' \n", "Paris", 1, 1),
        ("It is Paris, of course.", "paris", 0, 1),
        ("Parisian", "Paris", 0, 0),
        ("grandfather", "father", 0, 0),
        ("答案是四十二。", "四十二", 0, 1),
        ("四十二。", "四十二", 1, 1),
        ("１２", "12", 1, 1),
        ("the  Big\tApple", "The big apple", 1, 1),
        ("", "Paris", 0, 0),
        ("x = (a+b)*2", "(a+b)*2", 0, 1),
        ("-5", "5", 0, 1),
    ],
)
def test_exact_and_contains(answer: str, expected: str, exact: int, contains: int) -> None:
    for example in (_chat(expected), Completion("q", expected)):
        assert SCORERS.get("exact").score(Observed(answer), example, None) == exact
        assert SCORERS.get("contains").score(Observed(answer), example, None) == contains


def test_scorers_that_suit_the_rows_are_chosen() -> None:
    short, long = _dataset([_chat("yes")] * 5), _dataset([_chat("a long explanation " * 9)] * 5)
    assert choose_scorer(None, short)[0] == "exact"
    assert choose_scorer(None, long)[0] == "loss"
    assert choose_scorer(None, _dataset([_chat("巴黎")] * 5))[0] == "exact"
    assert choose_scorer(None, _dataset([_chat("我不会死，因为我没有身体。")] * 5))[0] == "loss", "a whole sentence"
    assert choose_scorer(None, _dataset([_chat("x")], lambda answer, example: 1.0))[0] == "task"
    assert choose_scorer(None, _dataset([Document("text")], kind="document"))[0] == "loss"
    assert choose_scorer(None, _dataset([Labelled("text", "a")], kind="labelled"))[0] == "accuracy"
    assert choose_scorer("contains", long)[0] == "contains"


@pytest.mark.parametrize(
    ("name", "examples", "possible"),
    [
        ("accuracy", [_chat("x")], "contains, exact, loss"),
        ("exact", [Document("text")], "loss"),
        ("loss", [Labelled("text", "a")], "accuracy"),
        ("task", [_chat("x")], "contains, exact, loss"),
    ],
)
def test_a_scorer_that_cannot_judge_the_rows_is_refused(name: str, examples: list[Example], possible: str) -> None:
    with pytest.raises(GalleyError) as raised:
        choose_scorer(name, _dataset(examples))
    assert raised.value.code == "plan-contradiction"
    assert raised.value.hint == f"possible here: {possible}"


def test_an_unknown_scorer_names_the_nearest() -> None:
    with pytest.raises(GalleyError) as raised:
        choose_scorer("exacct", _dataset([_chat("x")]))
    assert raised.value.code == "name-unknown"
    assert raised.value.hint.startswith("did you mean exact?")
