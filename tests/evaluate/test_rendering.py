"""The page of a verdict, as golden files."""

from __future__ import annotations

import re
import unicodedata

import pytest

from conftest import Golden
from galley.evaluate import Answer, Verdict, render
from galley.evaluate.verdict import Confusion

pytestmark = pytest.mark.unit

_PROMPT = (
    "Axel is married to Ava. They have a child called Edward. Edward is married to Sarah. They have a child called "
    "Benjamin.\n\nWhat is Edward to Axel? Respond only with the word that describes their relationship."
)


def _answer(row: int, base_score: float, tuned_score: float, **texts: str) -> Answer:
    return Answer(
        row=row,
        prompt=texts.get("prompt", _PROMPT),
        expected=texts.get("expected", "son"),
        base=texts.get("base", "Axel is married to Sarah."),
        tuned=texts.get("tuned", "son"),
        base_score=base_score,
        tuned_score=tuned_score,
    )


def _columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def _verdict() -> Verdict:
    return Verdict(
        scorer="task",
        metric="the task's own score, mean from 0 to 1",
        higher_is_better=True,
        baseline="the base model",
        base=0.01,
        tuned=0.72,
        difference=0.71,
        interval=(0.645, 0.77),
        p_value=1e-30,
        n=200,
        better=True,
        worse=False,
        sentence="The tuned model is better: the task's own score 0.720 against 0.010 of the base model on 200 unseen "
        "rows (difference +0.710, 95 % interval +0.645 to +0.770).",
        best=(
            _answer(3, 0, 1),
            _answer(17, 0, 1, prompt="奥利弗和艾玛结婚了。" * 20, expected="儿子", tuned="儿子", base=""),
        ),
        worst=(_answer(9, 1, 0, tuned="wife"),),
        notes=("2 held-out prompts are longer than 512 tokens and were not asked",),
        seconds=21.4,
    )


def test_a_verdict_in_words_bars_and_answers(golden: Golden) -> None:
    golden("verdict.txt", render(_verdict()) + "\n")


def test_a_classifier_shows_who_is_taken_for_whom(golden: Golden) -> None:
    verdict = _verdict().model_copy(
        update={
            "metric": "accuracy, share of rows",
            "baseline": "always answering 'ham', the most frequent class",
            "better": False,
            "sentence": "The tuned model is not better.",
            "best": (),
            "worst": (),
            "confusion": Confusion(labels=("ham", "spam"), counts=((90, 10), (0, 100))),
            "p_value": None,
        }
    )
    golden("confusion.txt", render(verdict) + "\n")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_fit_the_terminal_and_colour_changes_no_text(width: int) -> None:
    plain = render(_verdict(), width=width)
    painted = render(_verdict(), width=width, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain
    assert painted != plain
    if width >= 80:
        assert max(map(_columns, plain.splitlines())) <= min(width, 100)
