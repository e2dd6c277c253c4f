"""Tiny random models of many families of causal language models, each with what makes its family special."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VOCAB = 96

_LLAMA: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_GPT2 = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "n_positions": 64, "n_embd": 32, "n_head": 4}
_MLA = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_key_value_heads": 4,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope_theta": 5000.0},
    "llama-tied": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "decoder_sparse_step": 1, **_MOE},
    "gemma": {"head_dim": 16, "tie_word_embeddings": True},
    "gemma2": {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "final_logit_softcapping": 2.0,
        "attn_logit_softcapping": 3.0,
        "sliding_window": 6,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6, "tie_word_embeddings": True},
    "mistral": {"sliding_window": 6},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"pad_token_id": 0},
    "gpt2": {**_GPT2, "n_layer": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "gpt_neox": {"attention_bias": True},
    "gptj": {**_GPT2, "n_layer": 2, "rotary_dim": 4},
    "codegen": {**_GPT2, "n_layer": 2, "rotary_dim": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 24, "dropout": 0.0},
    "olmo": {"clip_qkv": 0.5},
    "olmo2": {},
    "falcon": {"new_decoder_architecture": True, "alibi": False, "num_kv_heads": 2},
    "falcon-alibi": {"new_decoder_architecture": False, "alibi": True, "multi_query": False},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "granite": {
        "logits_scaling": 4.0,
        "attention_multiplier": 0.3,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
    },
    "granitemoe": {"logits_scaling": 4.0, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True, "tie_word_embeddings": True},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 6, "tie_word_embeddings": True},
    "starcoder2": {"sliding_window": None},
    "stablelm": {"partial_rotary_factor": 0.5, "use_qkv_bias": True},
    "deepseek_v2": {**_MLA, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 8},
    "deepseek_v3": {**_MLA, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "smollm3": {"no_rope_layers": [1, 0]},
    "mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
    "mamba2": {
        "hidden_size": 32,
        "state_size": 8,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 2,
        "chunk_size": 4,
    },
    "nemotron": {},
    "glm": {"head_dim": 8, "partial_rotary_factor": 0.5},
    "glm4": {"head_dim": 8, "partial_rotary_factor": 0.5},
    "exaone4": {"sliding_window": 6, "sliding_window_pattern": 2},
    "hunyuan_v1_dense": {"head_dim": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "ernie4_5": {"head_dim": 8},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 64},
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
        "embed_dropout": 0.0,
        "resid_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "xglm": {"d_model": 32, "ffn_dim": 48, "attention_heads": 4, "num_layers": 2, "dropout": 0.0},
    "gpt_oss": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
    "persimmon": {},
    "bamba": {
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_n_groups": 1,
        "mamba_d_state": 8,
        "mamba_chunk_size": 4,
        "mamba_expand": 2,
    },
    "phi3-longrope": {
        "pad_token_id": 0,
        "original_max_position_embeddings": 12,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [4.0] * 4,
            "original_max_position_embeddings": 12,
        },
    },
}
"""Name (a family's `model_type`, perhaps with a variant) -> what differs from a llama of two layers."""


def config(name: str) -> Any:
    """The configuration of one entry of `FAMILIES`."""
    from transformers import AutoConfig

    family = name.split("-", maxsplit=1)[0]
    special = FAMILIES[name]
    plain = {"vocab_size": VOCAB} if {"n_embd", "d_model", "n_layer", "state_size"} & special.keys() else _LLAMA
    return AutoConfig.for_model(family, **{**plain, **special})


def tiny_model(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, spread: float = 0.15) -> nn.Module:
    """A model with random weights large enough that every token matters to every later one.

    Args:
        name: an entry of `FAMILIES`.
        seed: of the weights.
        dtype: of the weights.
        spread: deviation of matrices; vectors (norms, biases) move by a third of it.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model: nn.Module = AutoModelForCausalLM.from_config(config(name))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, spread)
            else:
                parameter.add_(torch.randn_like(parameter) * spread / 3)
    return model.to(dtype).eval()
