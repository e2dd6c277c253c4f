"""The memory model of clusters: against published formulas and figures, and what must never happen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.plan import hardware as hardware_names
from galley.plan.activations import layer_bytes
from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.memory_model import MemoryEstimate, estimate_memory
from galley.plan.predict import predict
from galley.plan.published import known
from galley.plan.software import FSDP_QLORA, GALLEY, MEGATRON, NANOTRON, Software
from galley.plan.stages import refusal, stages_of
from galley.plan.states import adapter_parameters
from galley.plan.workload import Workload

pytestmark = pytest.mark.unit

GPT = Architecture(layers=96, hidden=12288, heads=96, ffn=49152, vocab=51200, gated=False, tied=True)
LLAMA_1B = Architecture(layers=16, hidden=2048, heads=32, ffn=8192, vocab=131072, tied=True)
LLAMA_3B = Architecture(layers=28, hidden=3072, heads=32, ffn=8192, vocab=131072)
LLAMA_7B, LLAMA_70B, MIXTRAL = known("llama-2-7b"), known("llama-3-70b"), known("mixtral-8x7b")
MODELS = (LLAMA_1B, LLAMA_7B, LLAMA_70B, MIXTRAL)
H100 = hardware_names.parse("8 nodes x 8x h100-80g")
STEP = Workload(sequence=4096, micro_batch=1, global_batch=256)


def memory(a: Architecture, w: Workload, layout: Layout, software: Software = GALLEY) -> MemoryEstimate:
    return estimate_memory(a, w, layout, H100, software)


def need(a: Architecture, w: Workload, layout: Layout, software: Software = GALLEY) -> float:
    return memory(a, w, layout, software).fullest.needed


def test_a_gpt_layer_keeps_34_bytes_a_hidden_number() -> None:
    """Korthikanti et al. 2022, table 2: 34 sbh with flash attention, over t with sequence parallelism."""
    work = replace(STEP, attention_dropout=True)
    plain = layer_bytes(GPT, work, Layout(), MEGATRON, experts=False)
    assert plain.kept == 34 * GPT.hidden
    assert layer_bytes(GPT, work, Layout(tensor=8), MEGATRON, experts=False).kept == 34 / 8 * GPT.hidden
    without = Layout(tensor=8, sequence_parallel=False)
    assert layer_bytes(GPT, work, without, MEGATRON, experts=False).kept == (10 + 24 / 8) * GPT.hidden


def test_scores_are_kept_without_a_fused_kernel_and_selective_recomputation_drops_them() -> None:
    """Korthikanti et al. 2022, table 2: 5as/h more bytes a hidden number."""
    work = replace(STEP, attention_dropout=True, fused_attention=False)
    kept = layer_bytes(GPT, work, Layout(), MEGATRON, experts=False).kept
    assert kept == 34 * GPT.hidden + 5 * GPT.heads * STEP.sequence
    selective = layer_bytes(GPT, replace(work, recompute="selective"), Layout(), MEGATRON, experts=False)
    assert selective.kept == 34 * GPT.hidden


@pytest.mark.parametrize(
    ("zero", "bytes_each"), [(0, 2 + 4 + 12), (1, 2 + 4 + 12 / 8), (2, 2 + 4 / 8 + 12 / 8), (3, 18 / 8)]
)
def test_zero_shares_states_as_its_paper_says(zero: int, bytes_each: float) -> None:
    """Rajbhandari et al. 2019, with gradients summed in float32."""
    parts = memory(LLAMA_7B, STEP, Layout(data=8, zero=zero)).first.phases["step"]  # type: ignore[arg-type]
    states = parts["weights"] + parts["gradients"] + parts["optimizer"]
    assert states == pytest.approx(bytes_each * LLAMA_7B.num_parameters, rel=0.001)


def test_an_adapter_counts_as_many_parameters_as_peft() -> None:
    """PEFT prints 9,175,040 trainable parameters for Llama-3.2-3B with rank 32 on queries and values."""
    llama = known("llama-3.2-3b")
    work = replace(STEP, tuning="lora", rank=32, targets="query-value")
    assert adapter_parameters(llama, work) * llama.layers == 9_175_040


@pytest.mark.parametrize(
    ("layout", "micro_batch", "gib"),
    [
        (Layout(data=16, zero=1), 1, 49.1),
        (Layout(data=16, tensor=2), 1, 45.4),
        (Layout(data=2, tensor=8), 8, 38.3),
        (Layout(data=64, pipeline=2), 1, 59.6),
        (Layout(data=8, pipeline=4), 1, 42.3),
        (Layout(data=4, pipeline=8), 1, 33.5),
    ],
)
def test_runs_of_the_ultra_scale_sweep(layout: Layout, micro_batch: int, gib: float) -> None:
    """Measured on the first stage of a 3B model (Ultra-Scale Playbook, benchmarks_interactive)."""
    found = memory(LLAMA_3B, replace(STEP, micro_batch=micro_batch), layout, NANOTRON).first
    assert found.likely / 2**30 == pytest.approx(gib, rel=0.11)


@pytest.mark.parametrize(
    ("micro_batch", "tuning", "gib"), [(10, "qlora", 20.97), (4, "qlora", 11.22), (4, "lora", 16.14)]
)
def test_runs_of_fsdp_qlora(micro_batch: int, tuning: str, gib: float) -> None:
    """Measured on two RTX 3090 with Llama-2-7B (AnswerDotAI/fsdp_qlora, benchmarks 03/2024)."""
    a = replace(LLAMA_7B, norm_fp32=True)
    work = Workload(sequence=2048, micro_batch=micro_batch, global_batch=2 * micro_batch, rank=64, recompute="full")
    work = replace(work, tuning=tuning)  # type: ignore[arg-type]
    found = memory(a, work, Layout(data=2, zero=3), FSDP_QLORA).first
    assert found.likely / 2**30 == pytest.approx(gib, rel=0.1)


def test_stages_are_filled_by_work_with_the_head_counted() -> None:
    """The Ultra-Scale Playbook prints nanotron's stages; a table of 131,072 rows costs four layers of the 1B model."""
    shown = stages_of(LLAMA_1B, Layout(pipeline=4), 64, balances_head=True)
    assert [(stage.index, stage.layers, stage.head) for stage in shown] == [(0, 6, False), (1, 5, False), (3, 0, True)]
    even = stages_of(LLAMA_1B, Layout(pipeline=4), 64, balances_head=False)
    assert {stage.layers for stage in even} == {4}


def test_an_interleaved_schedule_keeps_more() -> None:
    """Narayanan et al. 2021 (2104.04473): 1 + (p-1)/(pv) times the activations, on the first stage."""
    plain, interleaved = (
        memory(LLAMA_70B, STEP, Layout(pipeline=4, virtual=virtual)).first.phases["step"]["activations"]
        for virtual in (1, 5)
    )
    assert interleaved / plain == pytest.approx(1 + (4 - 1) / (4 * 5))


def test_an_engine_refuses_a_pipeline_that_it_cannot_fill() -> None:
    assert refusal(LLAMA_1B, Layout(pipeline=8), 4, NANOTRON) == "fewer micro-batches than stages less one"
    assert refusal(LLAMA_1B, Layout(pipeline=16), 64, NANOTRON) == "stages without work"
    assert (
        refusal(LLAMA_1B, Layout(pipeline=8), 64, NANOTRON) == refusal(LLAMA_1B, Layout(pipeline=16), 4, GALLEY) == ""
    )
    prediction = predict(LLAMA_1B, STEP, Layout(pipeline=16), H100, NANOTRON)
    assert prediction.refused
    assert not prediction.fits


def test_a_reference_model_weighs_as_much_as_the_weights() -> None:
    alone = memory(LLAMA_7B, STEP, Layout()).first.parts["weights"]
    assert memory(LLAMA_7B, replace(STEP, frozen_models=1.0), Layout()).first.parts["weights"] == 2 * alone


def test_generation_can_be_the_peak() -> None:
    """Keys and values of Llama-2-7B: 0.5 MiB a token."""
    work = replace(STEP, tuning="qlora", generation_rows=256, generation_length=1024)
    found = memory(LLAMA_7B, work, Layout()).first
    assert found.phase == "generation"
    assert found.parts["cache"] == 256 * 1024 * 2**19


def test_what_the_host_keeps_is_not_on_the_device() -> None:
    work = replace(STEP, offload_optimizer=True)
    assert memory(LLAMA_7B, work, Layout(data=4, zero=2)).first.parts["optimizer"] == 0
    away = memory(LLAMA_7B, replace(work, offload_parameters=True), Layout(data=4, zero=3)).first.parts
    assert away["weights"] == 0
    assert away["gathered"] > 0


models = st.sampled_from(MODELS)
works = st.builds(
    Workload,
    sequence=st.sampled_from((512, 4096, 32768)),
    micro_batch=st.sampled_from((1, 2, 8)),
    global_batch=st.just(1024),
    tuning=st.sampled_from(("full", "lora", "qlora")),
    recompute=st.sampled_from(("none", "selective", "full")),
    fused_attention=st.booleans(),
    fused_loss=st.booleans(),
)
layouts = st.builds(
    Layout,
    tensor=st.sampled_from((1, 2, 8)),
    pipeline=st.sampled_from((1, 2, 4)),
    data=st.sampled_from((1, 4, 32)),
    zero=st.sampled_from((1, 2, 3)),
)


@settings(max_examples=60, deadline=None)
@given(models, works, layouts)
def test_parts_are_never_negative_and_the_range_holds_the_likely(a: Architecture, w: Workload, layout: Layout) -> None:
    for device in memory(a, w, layout).stages:
        assert all(size >= 0 for parts in device.phases.values() for size in parts.values())
        assert device.low < device.likely < device.high
        assert device.likely <= device.needed


@settings(max_examples=60, deadline=None)
@given(models, works, layouts)
def test_more_devices_never_need_more_memory_each(a: Architecture, w: Workload, layout: Layout) -> None:
    here = need(a, w, layout)
    assert need(a, w, replace(layout, data=2 * layout.data)) <= here * (1 + 1e-9)
    assert need(a, w, replace(layout, context=2)) <= here * (1 + 1e-9)
    assert need(a, w, replace(layout, tensor=2 * layout.tensor)) <= here * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(models, works, layouts)
def test_computing_again_never_needs_more(a: Architecture, w: Workload, layout: Layout) -> None:
    none, selective, full = (need(a, replace(w, recompute=r), layout) for r in ("none", "selective", "full"))
    assert full <= selective * (1 + 1e-9) <= none * (1 + 2e-9)


@settings(max_examples=60, deadline=None)
@given(models, works, layouts)
def test_more_tokens_never_need_less(a: Architecture, w: Workload, layout: Layout) -> None:
    here = need(a, w, layout)
    assert need(a, replace(w, sequence=2 * w.sequence), layout) >= here
    wider = replace(w, micro_batch=2 * w.micro_batch, global_batch=2 * w.global_batch)
    assert need(a, wider, layout) >= here
