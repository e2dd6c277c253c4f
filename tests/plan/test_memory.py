"""The memory and time models, against counts that transformers and PEFT give."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from galley.plan.case import FAST_FAMILIES
from galley.plan.memory import known_architecture, memory_parts, trained_parameters
from galley.plan.time import flops_per_token, tokens_per_second
from galley.plan.types import Measured
from galley.plan.workload import Workload
from galley.recipe.schema import OptimizerName, Tuning
from plan.cases import BERT, H100, LAPTOP, LLAMA_8B, NET, OLD_LAPTOP, SMOLLM

pytestmark = pytest.mark.unit

STEP = Workload(sequence=560, tuning="lora", master_bytes=0.0, fused_loss=True)
FULL = replace(STEP, tuning="full", master_bytes=4.0, gradient_bytes=6.0)
BLOCKS = 106_200_000
"""Of SmolLM2-135M: its parameters less the embedding."""
MEASURED = Measured(
    device="cpu",
    on="2026-01-31",
    tflops={"bf16": 1.74, "fp32": 0.28},
    half_speed_rows={"bf16": 96.0, "fp32": 37.0},
    memory_gbps=20.9,
)


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
            assert trained_parameters(spec, replace(STEP, tuning=tuning)) == count  # type: ignore[arg-type]
            model = adapted.unload()


def test_full_tuning_needs_the_textbook_bytes() -> None:
    """bf16 weights 2, float32 master 4, gradients 4 (and 2 passing), Adam 8 bytes a parameter."""
    full = memory_parts(LLAMA_8B, FULL, "cuda")
    states = full["weights"] + full["gradients"] + full["optimizer"]
    assert states == pytest.approx(20 * LLAMA_8B.num_parameters, rel=0.01)
    single = replace(FULL, precision="fp32", master_bytes=0.0, gradient_bytes=4.0)
    whole = memory_parts(LLAMA_8B, single, "cuda")
    states = whole["weights"] + whole["gradients"] + whole["optimizer"]
    assert states == pytest.approx(16 * LLAMA_8B.num_parameters, rel=1e-4)


def test_qlora_keeps_embeddings_and_head_whole() -> None:
    """QLoRA, 2305.14314, section 3: 0.53 bytes a weight with the scales quantised."""
    work = replace(STEP, tuning="qlora")
    weights = memory_parts(LLAMA_8B, work, "cuda")["weights"]
    embeddings = 2 * LLAMA_8B.vocab_size * LLAMA_8B.hidden_size * 2
    assert weights == pytest.approx(embeddings + 0.53 * 6.98e9 + 4 * trained_parameters(LLAMA_8B, work), rel=0.01)


@given(st.sampled_from(get_args(Tuning)), st.sampled_from(get_args(OptimizerName)), st.integers(16, 4096))
def test_more_tokens_never_need_less(tuning: Tuning, optimizer: OptimizerName, tokens: int) -> None:
    few = replace(STEP, tuning=tuning, optimizer=optimizer, sequence=tokens)
    many = replace(few, sequence=2 * tokens)
    assert sum(memory_parts(SMOLLM, few, "cpu").values()) <= sum(memory_parts(SMOLLM, many, "cpu").values())
    recomputed = memory_parts(SMOLLM, replace(few, recompute="full"), "cpu")
    assert recomputed["activations"] < memory_parts(SMOLLM, few, "cpu")["activations"]
    assert all(size >= 0 for size in recomputed.values())


def test_the_paths_differ_in_what_layers_keep() -> None:
    """Of one token and layer of SmolLM2: all inputs and intermediates, those of fused parts, and two hidden vectors."""
    work = replace(STEP, sequence=1024)
    general, fused, fast = (
        memory_parts(SMOLLM, work, "cpu", path)["activations"] / 1024 for path in ("general", "fused", "fast")
    )
    # 30 layers, and the gradients of one; queries, keys, values and their sum are 1536 numbers, like the inner ones.
    assert general == pytest.approx(31 * (2 * 2 * 576 + 4 * 4 * 576 + 4 * 2 * 576 + 2 * 1536 + 2 * 4 * 1536), rel=0.01)
    assert fused == pytest.approx(31 * (2 * 2 * 576 + 2 * 2 * 576 + 2 * 1536 + 2 * 3 * 1536), rel=0.01)
    assert 30 * 2 * 2 * 576 < fast < 0.4 * fused


def test_encoders_have_no_logits_and_modules_show_their_size_when_they_run() -> None:
    encoder = memory_parts(BERT, STEP, "cpu")
    assert encoder["logits"] == 0
    assert encoder["activations"] > 0
    module = memory_parts(NET, FULL, "cpu")
    assert [name for name, size in module.items() if size] == ["runtime"]
    assert module["runtime"] < encoder["runtime"]


def test_work_of_a_token() -> None:
    a = known_architecture(SMOLLM)
    assert a is not None
    work = replace(STEP, supervised_share=0.07)
    assert flops_per_token(a, work, 70) == pytest.approx(4 * BLOCKS, rel=0.15)
    full = replace(FULL, supervised_share=0.07)
    assert flops_per_token(a, full, 70) == pytest.approx(6 * BLOCKS, rel=0.05)


@pytest.mark.tiny
def test_the_fast_path_is_planned_for_the_families_that_it_knows() -> None:
    from galley.models.fast.shape import FAMILIES

    assert set(FAMILIES) == FAST_FAMILIES


def test_speeds_are_of_the_right_size() -> None:
    work = replace(STEP, supervised_share=0.07)
    likely = tokens_per_second(SMOLLM, work, LAPTOP, "cpu", "fast", 70)
    assert 1_150 < likely < 1_450, "measured: about 1,300"
    general = tokens_per_second(SMOLLM, work, LAPTOP, "cpu", "fused", 70)
    assert 0.65 * likely < general < 0.85 * likely
    old = tokens_per_second(SMOLLM, replace(work, precision="fp32"), OLD_LAPTOP, "cpu", "fast", 70)
    assert old < likely
    gpu = tokens_per_second(LLAMA_8B, work, H100, "cuda", "fast", 70)
    assert 5_000 < gpu < 20_000, "published LoRA runs of 8B on one H100"
    assert tokens_per_second(NET, work, LAPTOP, "cpu", "general", 70) == 0


def test_measured_products_and_memory_take_the_place_of_the_rule() -> None:
    """The rule and the figures of the machine that it was made on agree; others follow what was measured."""
    work = replace(STEP, supervised_share=0.07)
    rule = tokens_per_second(SMOLLM, work, LAPTOP, "cpu", "fast", 70)

    def speed(measured: Measured, tokens: int = 560) -> float:
        here = LAPTOP.model_copy(update={"measured": measured})
        return tokens_per_second(SMOLLM, replace(work, sequence=tokens), here, "cpu", "fast", 70)

    assert speed(MEASURED) == pytest.approx(rule, rel=0.1)
    twice = {"tflops": {"bf16": 3.48}, "memory_gbps": 41.8}
    assert speed(MEASURED.model_copy(update=twice)) == pytest.approx(2 * speed(MEASURED))
    assert speed(MEASURED) < speed(MEASURED, tokens=2000), "larger products are faster"
    slow_memory = MEASURED.model_copy(update={"memory_gbps": 5.0})
    assert speed(slow_memory) < 0.8 * speed(MEASURED)
    assert speed(MEASURED.model_copy(update={"device": "cuda"})) == rule, "of another device"
    assert speed(MEASURED.model_copy(update={"tflops": {"fp32": 0.28}})) == rule, "bf16 was not measured"
