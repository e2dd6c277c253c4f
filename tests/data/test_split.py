"""Held-out rows: stable, disjoint from training, and never silently so."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.reading_helpers import read_data, turns
from galley.base import GalleyError
from galley.data import Conversation, Dataset, Document, Labelled, Message
from galley.data.content import Fingerprint, row_key
from galley.data.split import held_out_keys

pytestmark = pytest.mark.unit

QUICK = settings(deadline=None, max_examples=50)
keys = st.lists(st.integers(0, 2**64 - 1), max_size=300)
shares = st.floats(0.01, 0.5)


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "answer"), *rows])
    return path


def many(count: int) -> list[tuple[str, str]]:
    return [(f"What is {number}?", f"It is {number}.") for number in range(count)]


def questions(rows: object) -> list[str]:
    assert isinstance(rows, list)
    return [turns(row)[0][1] for row in rows]


@QUICK
@given(keys, shares)
def test_some_are_held_out_and_some_are_not(found: list[int], share: float) -> None:
    held = held_out_keys(found, share)
    if len(found) < 10:
        assert not held
    elif len(set(found)) > 1:
        assert 0 < len(held) < len(set(found))
    assert held <= set(found)


@QUICK
@given(keys, shares, st.randoms())
def test_order_and_repetition_change_nothing(found: list[int], share: float, rng: random.Random) -> None:
    shuffled = [*found]
    rng.shuffle(shuffled)
    assert held_out_keys(shuffled, share) == held_out_keys(found, share)


@QUICK
@given(st.integers(0, 2**32), st.integers(1, 500), shares)
def test_rows_that_are_added_move_no_other(seed: int, more: int, share: float) -> None:
    rng = random.Random(seed)
    found = [rng.getrandbits(64) for _ in range(1000)]
    before = held_out_keys(found[:-more], share)
    after = held_out_keys(found, share)
    if len(before) > 3:  # else the few smallest were taken
        assert before == after & set(found[:-more])


def test_the_share_is_kept() -> None:
    sample = [row_key(Document(f"row {number}")) for number in range(20_000)]
    assert abs(len(held_out_keys(sample, 0.1)) / 20_000 - 0.1) < 0.01


def test_equal_rows_are_on_one_side_whatever_their_case_and_space(tmp_path: Path) -> None:
    rows = many(40) + [(f"  WHAT is\t{number}? ", f"it is {number}.") for number in range(40)]
    data = read_data(write(tmp_path / "t.csv", rows), held_out=0.2)
    plain = [
        {" ".join(question.casefold().split()) for question in questions(side)} for side in (data.train, data.held_out)
    ]
    assert plain[0] & plain[1] == set()
    assert data.statistics.duplicates == 40
    assert len(data.train) + len(data.held_out) == 80


def test_reordering_the_file_moves_no_row(tmp_path: Path) -> None:
    rows = many(60)
    first = read_data(write(tmp_path / "a.csv", rows), held_out=0.2)
    second = read_data(write(tmp_path / "b.csv", rows[::-1]), held_out=0.2)
    assert set(questions(first.held_out)) == set(questions(second.held_out))
    assert first.fingerprint != second.fingerprint


def test_few_rows_hold_nothing_out_and_say_so(tmp_path: Path) -> None:
    data = read_data(write(tmp_path / "t.csv", many(9)), held_out=0.1)
    assert (len(data.train), len(data.held_out)) == (9, 0)
    assert any("no rows are held out" in note for note in data.notes)
    assert not read_data(write(tmp_path / "t.csv", many(9))).notes


@pytest.mark.parametrize(("count", "least"), [(10, 2), (14, 2), (15, 3), (40, 3)])
def test_small_data_holds_out_a_few(tmp_path: Path, count: int, least: int) -> None:
    data = read_data(write(tmp_path / "t.csv", many(count)), held_out=0.01)
    assert len(data.held_out) == least


def test_rows_of_a_held_out_file_are_dropped_from_training(tmp_path: Path) -> None:
    held = write(
        tmp_path / "held.csv", [("what IS 3?", " It is 3."), ("What is new?", "This."), ("What is 5?", "It is 5.")]
    )
    data = read_data(write(tmp_path / "train.csv", [*many(20), ("What is 3?", "It is 3.")]), held_out=str(held))
    assert data.statistics.leaked == 2
    assert len(data.held_out) == 3
    assert len(data.train) == 18
    assert not {"What is 3?", "What is 5?"} & set(questions(data.train))
    assert any("training rows dropped for that: 3" in note for note in data.notes)
    with pytest.raises(GalleyError, match="every training row also stands"):
        read_data(held, held_out=str(held))


def test_prompts_that_training_has_with_other_answers_are_counted(tmp_path: Path) -> None:
    held = write(tmp_path / "held.csv", [("What is 3?", "Three."), ("What is new?", "This.")])
    data = read_data(write(tmp_path / "train.csv", many(20)), held_out=str(held))
    assert data.statistics.leaked == 0
    assert any(note.endswith("with other answers: 1 of 2") for note in data.notes)


def test_labelled_rows_are_the_same_under_any_label() -> None:
    assert row_key(Labelled("spam", "a")) == row_key(Labelled(" SPAM", "b"))


def fingerprint(*rows: Conversation) -> str:
    running = Fingerprint()
    for row in rows:
        running.add(row)
    return running.hexdigest()


def test_the_fingerprint_sees_every_difference(tmp_path: Path) -> None:
    def talk(role: str, *texts: str, train: bool = True) -> Conversation:
        return Conversation(tuple(Message(role, text, train) for text in texts))  # type: ignore[arg-type]

    rows = [
        (talk("user", "a", "b"),),
        (talk("user", "ab"),),
        (talk("user", "a"), talk("user", "b")),
        (talk("user", "b"), talk("user", "a")),
        (talk("assistant", "a", "b"),),
        (talk("assistant", "a", "b", train=False),),
        (talk("user", "A", "b"),),
    ]
    assert len({fingerprint(*case) for case in rows}) == len(rows)

    def read_(**section: str) -> Dataset:
        return read_data(write(tmp_path / "t.csv", many(20)), **section)  # type: ignore[arg-type]

    assert read_().fingerprint == read_().fingerprint
    assert read_().fingerprint != read_(system="Be brief.").fingerprint
    assert read_().fingerprint != read_(task="complete").fingerprint
