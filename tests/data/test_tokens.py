"""Rows and tokens in = kept + cut + dropped; nothing to learn is an error before training (items 6, 7, 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.chat_templates import make_tokenizer, tokenizer_of, turns
from galley.base import GalleyError
from galley.data.cache import TokenStore
from galley.data.encode import encode_examples
from galley.data.examples import Completion, Conversation, Document, Example, Labelled
from galley.data.tokens import TokenSamples

pytestmark = pytest.mark.tiny

Notes = list[tuple[str, str]]


def encode(
    examples: Sequence[Example], tokenizer: Any, max_length: int = 512, **options: Any
) -> tuple[TokenSamples, Notes]:
    notes: Notes = []
    samples = encode_examples(
        examples, tokenizer, max_length=max_length, note=lambda kind, text: notes.append((kind, text)), **options
    )
    return samples, notes


def account(samples: TokenSamples) -> None:
    report = samples.report
    assert report.rows_in == report.rows_kept + report.rows_without_targets
    kept = report.tokens_in - report.tokens_cut - report.tokens_dropped
    assert int(samples.lengths.sum()) == kept + report.tokens_repeated
    assert sum(int(samples.mask(row).sum()) for row in range(len(samples))) == report.supervised_tokens
    assert [len(samples.ids(row)) for row in range(len(samples))] == samples.lengths.tolist()


rows = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(rows=rows, max_length=st.integers(2, 20), pieces=st.booleans())
def test_conservation(rows: list[list[tuple[int, bool]]], max_length: int, pieces: bool) -> None:
    ids = np.array([token for row in rows for token, _ in row], dtype=np.int32)
    mask = np.array([pieces or learn for row in rows for _, learn in row], dtype=np.uint8)
    offsets = np.cumsum([0, *map(len, rows)])
    store = TokenStore(ids, mask, offsets, Counter())
    if not any(learn or pieces for row in rows for _, learn in row[1:max_length]):
        with pytest.raises(GalleyError, match="nothing is left to learn"):
            TokenSamples(store, max_length=max_length, pieces=pieces)
        return
    samples = TokenSamples(store, max_length=max_length, pieces=pieces)
    account(samples)
    assert samples.lengths.max() <= max_length
    # Every learned token but a row's first is a target once, or was cut; a document loses none.
    targets = Counter[tuple[int, int]]()
    position = Counter[int]()
    for row in range(len(samples)):
        example = int(samples.examples[row])
        first = max(0, position[example] - 1)
        for place, learn in enumerate(samples.mask(row)):
            assert samples.ids(row)[place] == rows[example][first + place][0]
            targets[example, first + place] += int(learn)
        position[example] = first + len(samples.ids(row))
    limit = [len(row) if pieces else min(len(row), max_length) for row in rows]
    expected = {
        (example, place): 1
        for example, row in enumerate(rows)
        for place in range(1, limit[example])
        if row[place][1] or pieces
    }
    assert +targets == Counter(expected)


def test_truncated_and_dropped_rows_are_counted(cache_folder: Path) -> None:
    tokenizer = tokenizer_of("chatml")
    talk = [
        turns("Hi", "Ho"),
        turns("Hi", "a long answer: " + "1 2 3 " * 40),
        turns("a long question: " + "1 2 3 " * 40, "Ho"),
    ]
    whole, _ = encode([Conversation(messages) for messages in talk], tokenizer)
    full = whole.lengths.tolist()
    assert whole.report.tokens_cut == whole.report.rows_truncated == 0
    samples, _ = encode([Conversation(messages) for messages in talk], tokenizer, max_length=40)
    report = samples.report
    account(samples)
    assert (report.rows_kept, report.rows_truncated, report.rows_without_targets) == (2, 1, 1)
    assert (report.tokens_cut, report.tokens_dropped) == (full[1] - 40, full[2])
    assert report.dropped_examples == (2,)
    assert report.lengths == (sorted(full)[1], max(full), max(full))
    assert samples.examples.tolist() == [0, 1]
    assert samples.ids(1).tolist() == whole.ids(1)[:40].tolist()


def test_nothing_left_names_rows_and_setting(cache_folder: Path) -> None:
    talk = [Conversation(turns("a long question " * 9, "Ho")) for _ in range(7)]
    with pytest.raises(GalleyError, match=r"any of 7 rows \(rows 1, 2, 3, 4, 5, ...\).*max_length = 16") as caught:
        encode(talk, tokenizer_of("chatml"), max_length=16)
    assert caught.value.code == "data-empty"
    assert "override.max_length" in caught.value.hint
    with pytest.raises(GalleyError, match="none has an answer"):
        encode([Conversation(turns("Hi")[:1])], tokenizer_of("chatml"))


def test_refused_row_is_named(cache_folder: Path) -> None:
    talk = [Conversation(turns("Hi", "Ho")), Conversation(turns("Hi", "Ho", system="Be kind."))]
    with pytest.raises(GalleyError, match=r"row 2: .*System role not supported") as caught:
        encode(talk, tokenizer_of("gemma"))
    assert caught.value.code == "data-template"


def test_labelled_rows_are_refused(cache_folder: Path) -> None:
    with pytest.raises(GalleyError, match="classify"):
        encode([Labelled("good", "yes")], tokenizer_of("chatml"))


@pytest.mark.parametrize("name", ["llama3", "gemma", "chatml"])
def test_documents_begin_and_end_once(name: str, cache_folder: Path) -> None:
    tokenizer = tokenizer_of(name)
    bos, eos = tokenizer.bos_token or "", tokenizer.eos_token
    texts = ["A first text.\n\nIts second part.", bos + "Begun already." + eos, "你好，世界。"]
    samples, _ = encode([Document(text) for text in texts], tokenizer)
    account(samples)
    for row, text in enumerate(texts):
        ids, whole = samples.ids(row).tolist(), text.removeprefix(bos).removesuffix(eos)
        assert ids == tokenizer.encode(bos + whole + eos, add_special_tokens=False)
        assert samples.mask(row).tolist() == [False] + [True] * (len(ids) - 1)


def test_long_documents_are_learned_in_pieces_without_loss(cache_folder: Path) -> None:
    tokenizer = tokenizer_of("llama3")
    text = "Anna is the mother of Bert. " * 30
    whole, _ = encode([Document(text)], tokenizer, max_length=10_000)
    samples, notes = encode([Document(text), Document("Short.")], tokenizer, max_length=32)
    account(samples)
    learned = [token for row in range(len(samples) - 1) for token in samples.ids(row)[samples.mask(row)]]
    assert learned == whole.ids(0)[1:].tolist()
    assert samples.report.tokens_cut == samples.report.rows_truncated == 0
    assert ("pieces", "1 documents longer than 32 tokens are learned in pieces; no token is lost") in notes


@pytest.mark.parametrize("name", ["llama3", "gemma", "chatml"])
def test_completions_learn_the_completion_and_the_end(name: str, cache_folder: Path) -> None:
    tokenizer = tokenizer_of(name)
    examples = [
        Completion("The mother of Anna is", " Bert."),
        Completion("2 + 2 =\n", "\n4"),
        Completion("The moth", "er"),
        Completion("", "Alone."),
    ]
    samples, _ = encode(examples, tokenizer)
    account(samples)
    for row, example in enumerate(examples):
        ids = samples.ids(row).tolist()
        prompt = tokenizer.encode(example.prompt) if example.prompt else ids[:0]
        assert ids[: len(prompt)] == prompt, "the ids of the prompt alone"
        assert ids.count(tokenizer.eos_token_id) == 1
        text = tokenizer.decode(ids, skip_special_tokens=True)
        assert text == example.prompt + example.completion
        if example.prompt:
            assert samples.mask(row).tolist() == [False] * len(prompt) + [True] * (len(ids) - len(prompt))


def test_what_needed_care_is_said(cache_folder: Path) -> None:
    tokenizer = make_tokenizer("llama3", ("<s>", "</s>"), bos=None, eos="</s>", template=None)
    _, notes = encode([Conversation(turns("Code?", "x\n1")), Conversation(turns("Hi", "Ho"))], tokenizer)
    assert not notes
    zephyr = tokenizer_of("zephyr-llama3")
    samples, notes = encode([Conversation(turns("Code?", "x"))], zephyr)
    assert [kind for kind, _ in notes] == ["joined"]
    again, notes_again = encode([Conversation(turns("Code?", "x"))], zephyr)
    assert notes_again == notes, "said on every run, though the tokens came from the cache"
    assert again.ids(0).tolist() == samples.ids(0).tolist()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=5))
def test_bulk_equals_one_by_one(cache_folder: Path, texts: list[tuple[str, str]]) -> None:
    from galley.data.template import Template

    tokenizer = tokenizer_of("llama3")
    examples = [Conversation(turns(question, answer)) for question, answer in texts]
    samples, _ = encode(examples, tokenizer, max_length=10_000)
    template = Template(tokenizer_of("llama3"))
    for row, example in enumerate(examples):
        one = template.encode(example)
        assert (samples.ids(row).tolist(), samples.mask(row).tolist()) == (one.ids, one.mask)
