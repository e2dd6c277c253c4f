"""Streams of text: whole characters, nothing lost, nothing that a stop text takes back."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.generate.text import TextStream
from galley.models import train_tokenizer

pytestmark = pytest.mark.unit


@cache
def _tokenizer() -> Any:
    return train_tokenizer(["The quick brown fox. " * 4, "naïve café, 问题和答案 🙂🙂 "], 290)


def _pieces(ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    stream = TextStream(_tokenizer(), stop)
    pieces = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.finish()]


@given(st.text(max_size=40))
@settings(max_examples=150, deadline=None)
def test_pieces_are_whole_characters_and_join_to_the_text(text: str) -> None:
    ids = _tokenizer().encode(text, add_special_tokens=False)
    pieces = _pieces(ids)
    assert "".join(pieces) == _tokenizer().decode(ids, clean_up_tokenization_spaces=False)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_of_several_tokens_comes_once_it_is_complete() -> None:
    ids = _tokenizer().encode("\U0001f9ed", add_special_tokens=False)
    assert len(ids) > 1
    pieces = _pieces(ids)
    assert pieces[: len(ids) - 1] == [""] * (len(ids) - 1)
    assert "".join(pieces) == "\U0001f9ed"


def test_an_answer_cut_inside_a_character_ends_with_what_there_is() -> None:
    ids = _tokenizer().encode("a\U0001f9ed", add_special_tokens=False)[:-1]
    assert "".join(_pieces(ids)) == _tokenizer().decode(ids)


@given(st.text(alphabet="ab", max_size=20), st.text(alphabet="ab", min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_text_ends_before_the_first_stop(text: str, stop: str) -> None:
    ids = _tokenizer().encode(text, add_special_tokens=False)
    assert "".join(_pieces(ids, (stop, "zz"))) == text.split(stop, maxsplit=1)[0]
