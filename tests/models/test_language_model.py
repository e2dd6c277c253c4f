"""The fast path is chosen by itself, and refused as soon as it does not say what the general path says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from galley.models.base import ModelSettings
from galley.models.fast.llama import FastLlama
from galley.models.fast.projection import Projection
from galley.models.language_model import language_model
from galley.models.references import resolve

pytestmark = pytest.mark.tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({str(number): number for number in range(64)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1").save_pretrained(tmp_path)
    return tmp_path


def build(folder: Path, precision: str, **changes: Any) -> tuple[Any, list[str]]:
    notes: list[str] = []
    settings = ModelSettings(precision=precision, device="cpu", tuning="lora", rank=4, alpha=8.0, **changes)
    return language_model(resolve(str(folder)), settings, lambda kind, message: notes.append(message)), notes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_llama_runs_on_the_fast_path(folder: Path, precision: str) -> None:
    model, notes = build(folder, precision)
    assert isinstance(model, FastLlama)
    assert any("fast path" in note for note in notes)


def test_the_general_path_can_be_pinned(folder: Path) -> None:
    model, _ = build(folder, "fp32", fast_path=False)
    assert not isinstance(model, FastLlama)


def scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, batch: original(self, batch) * 1.3


def broken(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, batch: original(self, batch) * float("nan")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("fault", [scaled, broken])
def test_a_fast_path_that_is_wrong_is_refused(
    folder: Path, precision: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastLlama, "token_logprobs", fault(FastLlama.token_logprobs))
    model, notes = build(folder, precision)
    assert not isinstance(model, FastLlama)
    assert any("is used instead" in note for note in notes)
    assert torch.isfinite(torch.cat([p.flatten() for p in model.module.parameters()])).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_gradient_of_a_is_noticed_although_b_starts_at_zero(
    folder: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Projection.backward_factors

    def wrong(self: Projection, *args: torch.Tensor) -> None:
        original(self, *args)
        args[-1][: self.rank * self.width_in] *= -1

    monkeypatch.setattr(Projection, "backward_factors", wrong)
    model, notes = build(folder, precision)
    assert not isinstance(model, FastLlama)
    assert any("is used instead" in note for note in notes)
    up = [p for name, p in model.module.named_parameters() if "lora_B" in name]
    assert up
    assert not any(p.any() for p in up)  # and they start at zero again
