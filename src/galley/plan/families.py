"""The architecture of a model from its transformers config alone: what each family adds to a Llama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from galley.base import GalleyError
from galley.models.spec import ModelSpec
from galley.plan.architecture import Architecture
from galley.plan.mixers import mixer_of

Config = Mapping[str, Any]

_GPT: dict[str, Any] = {"gated": False, "biases": True}
_BERT: dict[str, Any] = {**_GPT, "head": False, "tied": True, "final_norms": 0}

# What differs from a Llama, as fields of `Architecture`. What a config can switch stands in the functions below.
_TRAITS: dict[str, dict[str, Any]] = {
    "qwen2": {"qkv_bias": True},
    "qwen2_moe": {"qkv_bias": True},
    "gemma2": {"norms": 4},
    "gemma3_text": {"norms": 4},
    "glm4": {"norms": 4},
    "phi": {**_GPT, "norms": 1},
    "gpt2": _GPT,
    "gpt_neox": _GPT,
    "gptj": {**_GPT, "qkv_bias": False, "out_bias": False, "norms": 1},
    "codegen": {**_GPT, "qkv_bias": False, "out_bias": False, "norms": 1},
    "gpt_neo": {**_GPT, "qkv_bias": False},
    "gpt_bigcode": _GPT,
    "opt": _GPT,
    "bloom": _GPT,
    "xglm": _GPT,
    "persimmon": _GPT,
    "starcoder2": _GPT,
    "falcon": {"gated": False, "norm_bias": True},
    "nemotron": {"gated": False, "norm_bias": True},
    "stablelm": {"norm_bias": True},
    "mpt": {"gated": False},
    "arcee": {"gated": False},
    "olmo": {"norms": 0, "final_norms": 0},
    "cohere": {"norms": 1},
    "cohere2": {"norms": 1},
    "gpt_oss": {"ffn_bias": True},
    "mamba": {"norms": 1, "ffn": 0},
    "falcon_mamba": {"norms": 1, "ffn": 0},
    "mamba2": {"norms": 1, "ffn": 0},
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": _BERT,
    "electra": _BERT,
    "modernbert": {"head": False, "tied": True},
}
_POSITIONS = frozenset({"gpt2", "gpt_neo", "gpt_bigcode", "opt", "bert", "roberta", "xlm-roberta", "distilbert"})
"""Families with a learned table of positions of the width of the residual stream."""
_ALL_HEADS = frozenset({*_POSITIONS, "gpt_neox", "gptj", "codegen", "bloom", "xglm", "persimmon", "mpt", "electra"})
"""Families in which every query head has its own keys, whatever the config says."""
_FOUR_TIMES = frozenset({"mpt", "bloom"})
"""Families whose feed-forward net is four times as wide, whatever the config says."""
_UNTIED = frozenset({"phi", "gptj", "codegen", "gpt_neox", "llama", "mistral", "mixtral", "deepseek_v2", "deepseek_v3"})
"""Families with a head of its own where the config is silent."""
_ALL_BIASED = frozenset(
    {"llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "granite", "granitemoe", "gpt_oss", "gpt_neox"}
    | {"nemotron", "hunyuan_v1_dense", "cohere", "cohere2", "olmo", "olmo2", "smollm3"}
)
"""Families whose `attention_bias` means all four matrices of attention; elsewhere it means all but the output."""


_CHECKED = """arcee bamba bert bloom codegen cohere cohere2 deepseek_v2 deepseek_v3 distilbert electra ernie4_5 exaone4
falcon gemma gemma2 gemma3_text glm glm4 gpt2 gpt_neo gpt_neox gpt_oss gptj granite granitemoe
hunyuan_v1_dense lfm2 llama mamba mamba2 mistral mixtral modernbert mpt nemotron olmo olmo2 olmo3 olmoe
opt persimmon phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe roberta smollm3 stablelm starcoder2 xglm"""
CHECKED = frozenset(_CHECKED.split())
"""Families whose parameters are counted exactly as transformers does; others are taken for the nearest of these."""


def architecture_of(spec: ModelSpec) -> Architecture:
    """The architecture of a model that was resolved, from its config; from the spec's own numbers without one.

    Raises:
        GalleyError: `model-unsupported` when its layers are not known, as of a user's own module.
    """
    if spec.config.get("model_type") or spec.config.get("num_hidden_layers"):
        return architecture_from_config({"tie_word_embeddings": spec.tied_embeddings, **spec.config})
    config = {
        "model_type": spec.family,
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_positions,
        "num_experts": spec.num_experts,
        "num_experts_per_tok": spec.num_experts_per_token,
        "tie_word_embeddings": spec.tied_embeddings,
    }
    return replace(architecture_from_config(config), parameters=spec.num_parameters)


def architecture_from_config(config: Config) -> Architecture:
    """The architecture that a transformers config describes.

    Args:
        config: the content of config.json; the part of the language model of one that also sees or hears.

    Raises:
        GalleyError: `model-unsupported` when it states no layers or no width.
    """
    text = config.get("text_config")
    config = {**config, **text} if isinstance(text, dict) else config
    family = str(config.get("model_type", ""))
    if config.get("is_encoder_decoder") or family in ("t5", "mt5", "bart"):
        return _encoder_decoder(config, family)
    layers = _first(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = _first(config, "hidden_size", "n_embd", "d_model", "dim")
    if not layers or not hidden:
        raise GalleyError(
            "model-unsupported", f"{family or 'the model'} states no layers", hint="plans of layers need a transformer"
        )
    heads = _first(config, "num_attention_heads", "n_head", "n_heads", "attention_heads", "num_heads")
    attends = family not in ("mamba", "falcon_mamba", "mamba2")
    plain = Architecture(
        layers=layers,
        hidden=hidden,
        heads=heads if attends else 0,
        kv_heads=_kv_heads(config, family, heads),
        head_dim=_first(config, "head_dim") if attends else 0,
        ffn=_ffn(config, family, hidden),
        vocab=_first(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", family not in _UNTIED)),
        mixer=mixer_of(config, family, layers, hidden),
    )
    found = replace(plain, **_TRAITS.get(family, {}))
    for part in (_biases, _attention, _experts, _norms, _outside, _windows):
        found = replace(found, **part(config, family, found))
    layer_norm = found.biases if found.norm_bias is None else found.norm_bias
    return replace(found, norm_fp32=not layer_norm)  # transformers' RMS norms compute in float32


def _ffn(config: Config, family: str, hidden: int) -> int:
    """Inner width; LFM2 states that of a net without a gate and takes two thirds of it."""
    inner = _first(config, "ffn_hidden_size", "intermediate_size", "n_inner", "ffn_dim", "hidden_dim")
    if family in _FOUR_TIMES or not inner:
        return 4 * hidden
    if family == "lfm2" and config.get("block_auto_adjust_ff_dim", True):
        unit = _first(config, "block_multiple_of") or 256
        inner = int(float(config.get("block_ffn_dim_multiplier") or 1.0) * int(2 * inner / 3))
        return -(-inner // unit) * unit
    return inner


def _kv_heads(config: Config, family: str, heads: int) -> int:
    if family == "falcon" and not config.get("new_decoder_architecture", False):
        return 1 if config.get("multi_query", True) else heads
    if config.get("multi_query") and family != "falcon":
        return 1
    if family in _ALL_HEADS:
        return heads
    return _first(config, "num_kv_heads", "num_key_value_heads") or heads


def _biases(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "attention_bias" in config:
        found["qkv_bias"] = bool(config["attention_bias"])
        found["out_bias"] = found["qkv_bias"] if family in _ALL_BIASED else a.out_bias
    if "mlp_bias" in config:
        found["ffn_bias"] = bool(config["mlp_bias"])
    if family in ("starcoder2", "ernie4_5", "opt", "falcon"):
        name, default = {"opt": ("enable_bias", True), "falcon": ("bias", False)}.get(
            family, ("use_bias", family == "starcoder2")
        )
        found.update(biases=bool(config.get(name, default)), norm_bias=a.norm_bias or a.biases)
    if family == "stablelm":
        found["qkv_bias"] = bool(config.get("use_qkv_bias", False))
    return found


def _attention(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    """Norms of queries and keys, sinks, latents."""
    if config.get("kv_lora_rank"):
        rotary, value = int(config["qk_rope_head_dim"]), int(config["v_head_dim"])
        ranks = int(config.get("q_lora_rank") or 0), int(config["kv_lora_rank"])
        return {"mla": (*ranks, rotary, value), "head_dim": int(config["qk_nope_head_dim"]) + rotary}
    width = a.head_dim or (a.hidden // a.heads if a.heads else 0)
    if family in ("qwen3", "qwen3_moe", "gemma3_text", "exaone4", "hunyuan_v1_dense", "lfm2"):
        return {"attention_extra": 2 * width}
    if family == "persimmon" and config.get("qk_layernorm", True):
        return {"attention_extra": 4 * width}
    if family in ("olmo2", "olmo3", "olmoe", "flex_olmo"):
        return {"attention_extra": a.queries + a.keys}
    normed = {"cohere": config.get("use_qk_norm"), "stablelm": config.get("qk_layernorm")}
    if normed.get(family):
        return {"attention_extra": a.queries + a.keys}
    return {"attention_extra": a.heads} if family == "gpt_oss" else {}


def _experts(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    experts = _first(config, "num_local_experts", "num_experts", "n_routed_experts")
    if not experts:
        return {}
    inner = _first(config, "moe_intermediate_size") or a.ffn
    shared = _first(config, "n_shared_experts") or _first(config, "shared_expert_intermediate_size") // inner
    dense = _first(config, "first_k_dense_replace") or len(config.get("mlp_only_layers") or ())
    gate = a.hidden if config.get("shared_expert_intermediate_size") else 0
    return {
        "experts": experts,
        "active_experts": _first(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk"),
        "expert_ffn": inner,
        "shared_experts": shared,
        "dense_layers": max(dense, a.layers - a.layers // (_first(config, "decoder_sparse_step") or 1)),
        "router_extra": experts if family == "gpt_oss" else gate,
    }


def _norms(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    """Blocks side by side share a norm."""
    if family == "stablelm" and config.get("use_parallel_residual", False):
        return {"norms": 1}
    if family == "falcon":
        if config.get("new_decoder_architecture", False):
            return {"norms": int(config.get("num_ln_in_parallel_attn") or 2)}
        return {"norms": 1 if config.get("parallel_attn", True) else 2}
    if family == "opt" and not config.get("do_layer_norm_before", True):
        return {"final_norms": 0}
    return {}


def _outside(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    """Positions and segments, narrower embeddings, norms of the embedding, poolers, biases of the head."""
    found: dict[str, Any] = {}
    hidden, rows = a.hidden, _first(config, "max_position_embeddings", "n_positions", "n_ctx")
    if family in _POSITIONS:
        found["positions"] = rows + (2 if family == "opt" else 0) + _first(config, "type_vocab_size")
    if family in ("bloom", "bert", "roberta", "xlm-roberta", "distilbert"):
        found["outside_extra"] = 2 * hidden  # norm of the embedding
    if family in ("bert", "roberta", "xlm-roberta"):
        found["outside_extra"] += hidden * hidden + hidden  # pooler
    if family in ("phi", "gptj", "codegen"):
        found["outside_extra"] = a.vocab
    # modernbert norms the embedding and leaves the first norm of the first layer out, which is the same number
    narrow = _first(config, "word_embed_proj_dim", "embedding_size")
    if narrow and narrow != hidden:
        found["embedding_width"] = narrow
        found["outside_extra"] = 2 * narrow * hidden  # in and out (opt)
    if family == "electra":
        narrow = narrow or hidden
        inside = narrow * hidden + hidden if narrow != hidden else 0
        found["outside_extra"] = inside + (rows + _first(config, "type_vocab_size") + 2) * narrow
    return found


def _windows(config: Config, family: str, a: Architecture) -> dict[str, Any]:
    """Sliding windows: of the layers that the config lists, else as the family spreads them."""
    window = _first(config, "sliding_window", "window_size", "local_attention")
    if not window or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types") or config.get("attention_layers")
    if isinstance(kinds, list):
        near = sum(kind in ("sliding_attention", "local") for kind in kinds)
    else:
        every = {"gemma2": 2, "gpt_oss": 2, "gpt_neo": 2, "gemma3_text": 6, "cohere2": 4, "modernbert": 3}.get(
            family, 0
        )
        every = _first(config, "sliding_window_pattern", "global_attn_every_n_layers") or every
        near = a.layers - a.layers // every if every else a.layers
    return {"window": window, "window_layers": near}


def _encoder_decoder(config: Config, family: str) -> Architecture:
    """Of T5 and BART: layers of both sides together; those of the decoder also attend to the encoder's output."""
    hidden = _first(config, "d_model")
    bart = family == "bart"
    encoder = _first(config, "encoder_layers", "num_layers")
    decoder = _first(config, "decoder_layers", "num_decoder_layers") or encoder
    heads = _first(config, "num_heads", "encoder_attention_heads")
    positions = 2 * (_first(config, "max_position_embeddings") + 2) if bart else 0
    distances = 2 * heads * _first(config, "relative_attention_num_buckets")  # a bias of each, in both sides
    return Architecture(
        layers=encoder + decoder,
        cross_layers=decoder,
        hidden=hidden,
        heads=heads,
        head_dim=_first(config, "d_kv"),
        ffn=_first(config, "d_ff", "encoder_ffn_dim"),
        vocab=_first(config, "vocab_size"),
        gated="gated" in str(config.get("feed_forward_proj", "")),
        tied=bool(config.get("tie_word_embeddings", True)),
        biases=bart,
        positions=positions,
        outside_extra=4 * hidden if bart else distances,  # norms of the embeddings of both sides
        final_norms=0 if bart else 2,
        norm_fp32=not bart,
    )


def _first(config: Config, *names: str) -> int:
    """The first of these that the config states as a number; 0 for none."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
