"""New decoders with random weights, for `random:15M`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from galley.models.loading import LoadPrecision, torch_dtype
from galley.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import nn


def create(
    spec: ModelSpec, *, vocab_size: int, tokenizer: Any, seed: int, precision: LoadPrecision = "fp32"
) -> nn.Module:
    """A Llama-shaped decoder of the spec's shape, its weights a function of the seed.

    Weights are normal with a deviation of 0.02; those that write to the residual stream are divided by the square
    root of twice the depth.

    Args:
        spec: of a `random:` reference.
        vocab_size: entries of the tokenizer.
        tokenizer: gives the ids of end and padding.
        seed: of the weights.
        precision: dtype of the weights.

    Source: initialisation of GPT-2 (Radford et al., 2019, section 2.3).
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_positions,
        tie_word_embeddings=spec.tied_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = LlamaForCausalLM(config)
    scale = (2 * spec.num_layers) ** -0.5
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)
    module.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    for parameter in module.parameters():  # and no buffer: rotary frequencies stay float32, as in every loaded model
        parameter.data = parameter.data.to(torch_dtype(precision))
    return module.eval()  # type: ignore[no-any-return]
