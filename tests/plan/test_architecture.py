"""A model's arithmetic is that of the model: parameters of real modules, operations and caches by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from galley.base import GalleyError
from galley.models.shape import spec_from_config
from galley.models.spec import ModelSpec
from galley.plan.architecture import Architecture
from galley.plan.families import CHECKED, architecture_from_config, architecture_of
from models.families import FAMILIES, config

pytestmark = pytest.mark.unit

LLAMA_8B = Architecture(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14_336, vocab=128_256)


def count(model: Any) -> int:
    """Weights of a module; `parameters` gives tied ones once."""
    return sum(weight.numel() for weight in model.parameters())


def on_meta(auto: str, built: Any) -> Any:
    import torch
    import transformers

    with torch.device("meta"):
        return getattr(transformers, auto).from_config(built)


def test_families_that_are_called_checked_are() -> None:
    checked = {config(name).model_type for name in FAMILIES} | {built for _, built, _ in OTHERS.values()}
    assert not CHECKED.difference(checked)


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_of_every_tested_family(name: str) -> None:
    built = config(name)
    model = on_meta("AutoModelForCausalLM", built)
    written = json.loads(built.to_json_string())
    assert architecture_from_config(written).num_parameters == count(model)
    spec = spec_from_config(written, reference=name, source="hub")
    assert architecture_of(spec).num_parameters == count(model)


OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("AutoModel", "bert", {}),
    "roberta": ("AutoModel", "roberta", {}),
    "distilbert": ("AutoModel", "distilbert", {}),
    "electra": ("AutoModel", "electra", {}),
    "modernbert": ("AutoModel", "modernbert", {}),
    "t5": ("AutoModelForSeq2SeqLM", "t5", {"num_layers": 3, "num_decoder_layers": 2}),
    "mt5": ("AutoModelForSeq2SeqLM", "mt5", {"tie_word_embeddings": False}),
    "bart": ("AutoModelForSeq2SeqLM", "bart", {"encoder_layers": 2, "decoder_layers": 3}),
    "falcon-7b": ("AutoModelForCausalLM", "falcon", {"num_hidden_layers": 2, "bias": True}),
    "opt-350m": ("AutoModelForCausalLM", "opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 512}),
    "qwen2_moe": ("AutoModelForCausalLM", "qwen2_moe", {"num_hidden_layers": 4, "mlp_only_layers": [1]}),
    "deepseek_v2-lite": ("AutoModelForCausalLM", "deepseek_v2", {"num_hidden_layers": 3, "q_lora_rank": None}),
    "lfm2-two-thirds": ("AutoModelForCausalLM", "lfm2", {}),
    "olmoe": ("AutoModelForCausalLM", "olmoe", {"num_hidden_layers": 2}),
    "olmo3": ("AutoModelForCausalLM", "olmo3", {"num_hidden_layers": 4}),
    "arcee": ("AutoModelForCausalLM", "arcee", {"num_hidden_layers": 2}),
    "mamba-1": ("AutoModelForCausalLM", "mamba", {"num_hidden_layers": 2, "use_bias": True}),
    "llama-biased": ("AutoModelForCausalLM", "llama", {"attention_bias": True, "mlp_bias": True}),
    "stablelm-2": ("AutoModelForCausalLM", "stablelm", {"use_parallel_residual": True, "qk_layernorm": True}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_parameters_of_encoders_and_of_what_configs_switch(name: str) -> None:
    from transformers import AutoConfig

    auto, family, special = OTHERS[name]
    built = AutoConfig.for_model(family, **special)
    found = architecture_from_config(json.loads(built.to_json_string()))
    assert found.num_parameters == count(on_meta(auto, built))


def test_forward_is_two_operations_a_weight_and_attention() -> None:
    sequence = 4096
    assert LLAMA_8B.num_parameters == 8_030_261_248
    products = 2 * (8_030_261_248 - 128_256 * 4096)  # the embedding is looked up
    scores = 4 * 32 * 4096 * sequence  # scores and weighted values of 32 layers, 2 operations a factor each
    assert LLAMA_8B.forward_flops(sequence, causal=False) == products + scores
    assert LLAMA_8B.forward_flops(sequence) == products + scores / 2


def test_layers_add_up_to_the_forward_pass() -> None:
    layers = 32 * LLAMA_8B.layer_flops(1000)
    rest = 2 * (128_256 * 4096 + 4096)  # the head and the last norm
    assert LLAMA_8B.forward_flops(1000) == pytest.approx(layers + rest, rel=1e-12)


def test_experts_that_a_token_visits_are_counted() -> None:
    mixture = Architecture(layers=2, hidden=8, heads=2, ffn=16, vocab=32, experts=4, active_experts=2, expert_ffn=16)
    dense = Architecture(layers=2, hidden=8, heads=2, ffn=32, vocab=32)
    router = 2 * 4 * 8
    assert mixture.active_parameters == dense.num_parameters + router
    assert mixture.num_parameters == dense.num_parameters + router + 2 * 2 * 3 * 8 * 16
    assert mixture.forward_flops(10) == dense.forward_flops(10) + 2 * router


def test_a_window_bounds_attention_and_cache() -> None:
    windowed = Architecture(layers=4, hidden=8, heads=2, ffn=16, vocab=32, window=2, window_layers=3)
    # of 8 tokens the first sees 1 and the others 2 (counted from the middle of a token: 0.5, 1.5, then 2)
    near, far = (0.5 + 1.5 + 6 * 2) / 8, 4
    assert windowed.attention_flops(8) == 2 * (3 * near + far) / 4 * 16
    assert windowed.cache_bytes(8) == 2 * (3 * 2 + 8) * 2 * 8
    whole = Architecture(layers=4, hidden=8, heads=2, ffn=16, vocab=32, window=20, window_layers=3)
    assert whole.attention_flops(8) == Architecture(layers=4, hidden=8, heads=2, ffn=16, vocab=32).attention_flops(8)


def test_cache_of_one_token() -> None:
    assert LLAMA_8B.cache_bytes(1) == 2 * 2 * 32 * 8 * 128  # keys and values, 16 bits, 8 heads: 128 KiB
    many = Architecture(layers=32, hidden=4096, heads=32, ffn=11_008, vocab=32_000)
    assert many.cache_bytes(1) == 512 * 1024  # every head keeps its own: four times as much
    latent = Architecture(
        layers=61, hidden=7168, heads=128, head_dim=192, ffn=18_432, vocab=129_280, mla=(1536, 512, 64, 128)
    )
    assert latent.cache_bytes(1) == 70_272  # DeepSeek-V3: 70 KB a token


def test_the_state_of_a_mamba_does_not_grow() -> None:
    found = architecture_from_config(
        {"model_type": "mamba", "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "vocab_size": 96}
    )
    assert found.cache_bytes(10) == found.cache_bytes(1000) == 2 * 2 * 64 * (8 + 4)
    assert found.attention_flops(1000) == 0
    assert found.forward_flops(10) == found.forward_flops(1000) > 2 * found.num_parameters


def test_a_decoder_keeps_keys_of_its_own_row_and_of_the_encoders() -> None:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_heads": 2, "num_layers": 3, "num_decoder_layers": 2}
    found = architecture_from_config({"model_type": "t5", "vocab_size": 96, **sizes})
    assert found.cache_bytes(10) == 2 * 10 * 2 * 2 * (2 * 8)  # 2 layers, own and the encoder's, keys and values


def test_a_weight_file_without_a_config_gives_its_own_numbers() -> None:
    spec = ModelSpec(
        "a.gguf", "decoder", "qwen2", source="gguf", num_parameters=21_792, num_layers=2, hidden_size=32,
        intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8, vocab_size=96, config={"general.name": "a"},
    )  # fmt: skip
    found = architecture_of(spec)
    assert (found.layers, found.keys, found.ffn) == (2, 16, 48)
    assert found.num_parameters == replace(found, parameters=0).num_parameters == 21_792


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(GalleyError, match="states no layers"):
        architecture_of(ModelSpec("net.py", "module", "Net", source="file"))
