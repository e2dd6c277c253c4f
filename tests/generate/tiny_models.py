"""Tiny random causal models of many families, with weights spread enough that every token matters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCAB = 96
EOS = (3, 17)
"""Two of the tokens end an answer: transformers allows a list."""

_LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
_GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}

TOGETHER: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "qwen3": _LLAMA,
    "mistral": _LLAMA | {"sliding_window": 8},
    "gemma2": _LLAMA | {"sliding_window": 8, "attn_implementation": "eager", "final_logit_softcapping": 5.0},
    "gemma3_text": _LLAMA | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": _LLAMA | {"logit_scale": 0.3},
    "gpt2": _GPT,
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "attn_implementation": "eager"},
    "gpt_neox": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
    "deepseek_v3": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "max_position_embeddings": 64,
    },
}
"""Families whose attention honours padding."""

ALONE: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 2,
        "expand": 2,
    },
    "lfm2": _LLAMA | {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
}
"""State-space and convolution layers, which run over padding."""


def tiny_model(family: str) -> Any:
    """A seeded random model in float32, whose generation config names two end tokens."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = dict((TOGETHER | ALONE)[family])
    attention = shape.pop("attn_implementation", None)
    config = AutoConfig.for_model(
        family, vocab_size=VOCAB, eos_token_id=list(EOS), pad_token_id=EOS[0], bos_token_id=1, **shape
    )
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(8)
    return model.eval()


class WordTokenizer:
    """Token n is the word `wn`; tokens below 4 are special. Enough of a tokenizer for the decoder."""

    eos_token_id = EOS[0]
    bos_token_id = 1

    def __len__(self) -> int:
        return VOCAB

    def decode(self, ids: list[int], **_options: Any) -> str:
        return "".join(f"w{token} " for token in ids if token > 3)


class Plain(nn.Module):
    """A user's own module: ids [B, T] to logits [B, T, V], causal, without masks or caches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed = nn.Embedding(VOCAB, 24)
        self.recurrent = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.recurrent(self.embed(ids))[0]) * 20
        return logits


def prompts(count: int, *, seed: int = 0, longest: int = 20) -> list[list[int]]:
    """Random prompts of many lengths; ids of end and padding tokens occur inside them."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=random).tolist()
    rows: list[list[int]] = [torch.randint(VOCAB, (length,), generator=random).tolist() for length in lengths]
    for row in rows[::3]:
        row[len(row) // 2] = EOS[0]
    return rows


def expected_greedy(model: Any, rows: list[list[int]], max_new_tokens: int) -> list[list[int]]:
    """What transformers generates for each prompt by itself."""
    out = []
    for row in rows:
        ids = torch.tensor([row])
        with torch.no_grad():
            full = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False
            )
        out.append(full[0, len(row) :].tolist())
    return out
