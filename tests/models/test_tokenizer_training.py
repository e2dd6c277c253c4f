"""A tokenizer from nothing: lossless, deterministic, and the same after saving."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from galley.models import train_tokenizer
from models import hub_folders

pytestmark = pytest.mark.tiny


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    ids = hub_folders.tokenizer().encode(text, add_special_tokens=False)
    assert hub_folders.tokenizer().decode(ids) == text


def test_training_is_deterministic() -> None:
    texts = [f"row {i}: the sum of {i} and {i * 7} is {i * 8}" for i in range(500)]
    first, second = (train_tokenizer(iter(texts), 400).backend_tokenizer.to_str() for _ in range(2))
    assert first == second


def test_size_and_special_tokens() -> None:
    made = train_tokenizer(["a rose is a rose is a rose " * 50, "many more words make many more merges " * 50], 290)
    assert len(made) <= 290
    assert made.eos_token == made.pad_token == "<|endoftext|>"
    assert len(made.encode("<|im_start|><|im_end|><|endoftext|>")) == 3
    assert made.decode(made.encode("x<|im_end|>"), skip_special_tokens=True) == "x"


def test_saved_and_read_by_transformers(tmp_path: Path) -> None:
    made = hub_folders.tokenizer()
    made.save_pretrained(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The quick 2024 fox", "问题", "<|im_start|>user"):
        assert theirs.encode(text) == made.encode(text)
