"""The memory and time models, against counts that transformers and PEFT give."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.plan.case import FAST_FAMILIES
from galley.plan.memory import Load, block_parameters, linear_shapes, memory_parts, trained_parameters
from galley.plan.time import Work, flops_per_token, tokens_per_second
from galley.recipe.schema import OptimizerName, Tuning
from plan.cases import BERT, H100, LAPTOP, LLAMA_8B, OLD_LAPTOP, SMOLLM

pytestmark = pytest.mark.unit

LOAD = Load(tuning="lora", precision="bf16", optimizer="adamw", device="cpu", micro_batch_tokens=560)


@pytest.mark.tiny
def test_adapters_have_as_many_parameters_as_peft_makes() -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    spec = replace(SMOLLM, num_layers=2)
    config = LlamaConfig(
        hidden_size=SMOLLM.hidden_size,
        intermediate_size=SMOLLM.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=SMOLLM.num_heads,
        num_key_value_heads=SMOLLM.num_kv_heads,
        vocab_size=SMOLLM.vocab_size,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
        for tuning, dora in (("lora", False), ("dora", True)):
            adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", use_dora=dora))
            count = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
            assert trained_parameters(spec, tuning, 16) == count  # type: ignore[arg-type]
            model = adapted.unload()
    spec = replace(spec, num_parameters=sum(p.numel() for p in model.parameters()))
    blocks = sum(p.numel() for p in model.model.layers.parameters())
    assert block_parameters(spec) == pytest.approx(blocks, rel=1e-3)


def test_full_tuning_needs_the_textbook_bytes() -> None:
    """bf16 weights 2, float32 master 4, gradients 4 (and 2 passing), Adam 8 bytes a parameter."""
    full = memory_parts(LLAMA_8B, replace(LOAD, tuning="full", device="cuda"))
    states = full["weights"] + full["gradients"] + full["optimizer"]
    assert states == pytest.approx(20 * LLAMA_8B.num_parameters, rel=0.01)
    whole = memory_parts(LLAMA_8B, replace(LOAD, tuning="full", precision="fp32", device="cuda"))
    assert whole["weights"] + whole["gradients"] + whole["optimizer"] == 16 * LLAMA_8B.num_parameters


def test_qlora_keeps_embeddings_and_head_whole() -> None:
    weights = memory_parts(LLAMA_8B, replace(LOAD, tuning="qlora", device="cuda"))["weights"]
    embeddings = 2 * LLAMA_8B.vocab_size * LLAMA_8B.hidden_size * 2
    assert weights == pytest.approx(
        embeddings + 0.53 * 6.98e9 + 4 * trained_parameters(LLAMA_8B, "qlora", 16), rel=0.01
    )


@given(st.sampled_from(get_args(Tuning)), st.sampled_from(get_args(OptimizerName)), st.integers(16, 4096))
def test_more_tokens_never_need_less(tuning: Tuning, optimizer: OptimizerName, tokens: int) -> None:
    few = replace(LOAD, tuning=tuning, optimizer=optimizer, micro_batch_tokens=tokens)
    many = replace(few, micro_batch_tokens=2 * tokens)
    assert sum(memory_parts(SMOLLM, few).values()) <= sum(memory_parts(SMOLLM, many).values())
    recomputed = memory_parts(SMOLLM, replace(few, checkpointing="full"))
    assert recomputed["activations"] < memory_parts(SMOLLM, few)["activations"]
    assert all(size >= 0 for size in recomputed.values())


def test_encoders_have_no_logits_over_a_vocabulary() -> None:
    assert memory_parts(BERT, LOAD)["logits"] == 0
    assert len(linear_shapes(BERT)) == 6


def test_work_of_a_token() -> None:
    work = Work(tuning="lora", precision="bf16", device="cpu", mean_length=70, supervised_share=0.07)
    lora = flops_per_token(SMOLLM, work)
    full = flops_per_token(SMOLLM, replace(work, tuning="full"))
    assert lora == pytest.approx(4 * block_parameters(SMOLLM), rel=0.15)
    assert full == pytest.approx(6 * block_parameters(SMOLLM), rel=0.05)


@pytest.mark.tiny
def test_the_fast_path_is_planned_for_the_families_that_it_knows() -> None:
    from galley.models.fast.shape import FAMILIES

    assert set(FAMILIES) == FAST_FAMILIES


def test_speeds_are_of_the_right_size() -> None:
    work = Work(tuning="lora", precision="bf16", device="cpu", mean_length=70, supervised_share=0.07, fast_path=True)
    likely = tokens_per_second(SMOLLM, work, LAPTOP)
    assert 1_150 < likely < 1_450, "measured: about 1,300"
    general = tokens_per_second(SMOLLM, replace(work, fast_path=False), LAPTOP)
    assert 0.65 * likely < general < 0.85 * likely
    old = tokens_per_second(SMOLLM, replace(work, precision="fp32"), OLD_LAPTOP)
    assert old < likely
    gpu = tokens_per_second(LLAMA_8B, replace(work, device="cuda"), H100)
    assert 5_000 < gpu < 20_000, "published LoRA runs of 8B on one H100"
