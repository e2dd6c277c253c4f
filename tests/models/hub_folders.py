"""Tiny random models in hub layout, and the same as GGUF, for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from galley.models.tokenizer_training import train_tokenizer

TEXT = ["The quick brown fox jumps over 13 lazy dogs. " * 3, "问题和答案 в тексте: naïve café, 2024-11-30\n" * 3]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def tokenizer() -> Any:
    """A small byte-level tokenizer with a chat template."""
    made = train_tokenizer(TEXT, 300)
    made.chat_template = CHATML
    return made


def config(family: str, **changes: Any) -> Any:
    """A transformers configuration of two layers."""
    from transformers import AutoConfig

    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": tokenizer().pad_token_id,
    }
    if family == "gpt2":
        shape |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
            del shape[name]
    else:
        shape |= {"intermediate_size": 48, "max_position_embeddings": 128}
    if family in {"llama", "qwen3", "qwen3_moe", "gemma"}:
        shape |= {"num_key_value_heads": 2, "head_dim": 8}
    if family == "qwen3_moe":
        shape |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
    return AutoConfig.for_model(family, **(shape | changes))


def model(family: str, *, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A random model; seeded, with a spread of weights that makes logits differ clearly."""
    from transformers import AutoModel, AutoModelForCausalLM

    torch.manual_seed(0)
    auto = AutoModel if family == "bert" else AutoModelForCausalLM
    made: nn.Module = auto.from_config(config(family, **changes), dtype=dtype)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.1)
    return made.eval()


def folder(path: Path, family: str = "llama", **changes: Any) -> Path:
    """Write such a model to the path."""
    model(family, **changes).save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def gguf(path: Path, source: Any, *, words: str = "smollm", parts: int = 1) -> Path:
    """Write a llama model as GGUF, as llama.cpp's converter does: rotary halves interleaved in q and k."""
    from gguf import GGUFWriter, TokenType

    shape = source.config
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_freq_base(shape.rope_parameters["rope_theta"])
    writer.add_uint16("split.count", parts)
    _gguf_tokenizer(writer, TokenType, words)
    for name, weight in source.state_dict().items():
        if name == "lm_head.weight" and shape.tie_word_embeddings:
            continue
        stored = weight.float()
        if "q_proj" in name or "k_proj" in name:
            heads = shape.num_attention_heads if "q_proj" in name else shape.num_key_value_heads
            stored = stored.view(heads, 2, -1, stored.shape[-1]).transpose(1, 2).reshape(stored.shape)
        writer.add_tensor(_gguf_name(name), stored.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_tokenizer(writer: Any, kinds: Any, words: str) -> None:
    import json

    state = json.loads(tokenizer().backend_tokenizer.to_str())
    special = {token["id"] for token in state["added_tokens"]}
    tokens = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words)
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([kinds.CONTROL if number in special else kinds.NORMAL for _, number in tokens])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_eos_token_id(tokenizer().eos_token_id)
    writer.add_pad_token_id(tokenizer().pad_token_id)
    writer.add_chat_template(CHATML)


def _gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd",
        "model.layers.": "blk.",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
        "model.norm": "output_norm",
        "lm_head": "output",
    }
    for theirs, ours in parts.items():
        name = name.replace(theirs, ours)
    return name
