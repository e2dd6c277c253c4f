"""Reads a loaded transformers model as Llama-shaped layers, or says why it cannot be."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from galley.models.fast.attention import Heads
from galley.models.fast.kernels import GATES, RmsNorm
from galley.models.fast.layer import Layer
from galley.models.fast.projection import Linear, Projection


class Unsupported(Exception):  # noqa: N818 a reason, not an error
    """The model is not Llama-shaped; the message is the reason."""


@dataclass(frozen=True)
class Network:
    """The whole decoder.

    Args:
        layers: from bottom to top.
        norm: before the head.
        embedding_VD: frozen.
        embedding_scale: what embedded tokens are multiplied with.
        head_VD: output embedding, frozen.
        rotary: positions to cosine and sine, the model's own module, so that every kind of scaling is right.
        factors: trainable adapter factors.
    """

    layers: tuple[Layer, ...]
    norm: RmsNorm
    embedding_VD: nn.Parameter
    embedding_scale: float
    head_VD: Tensor
    rotary: nn.Module
    factors: tuple[nn.Parameter, ...]

    @property
    def projections(self) -> list[Projection]:
        """All matrices, from bottom to top."""
        return [projection for layer in self.layers for projection in layer.projections]


@dataclass(frozen=True)
class Family:
    """How a family differs from llama in what the shape of its modules does not show."""

    norm_offset: float = 0.0
    """Added to norm weights."""
    scaled_embedding: bool = False
    """Embedded tokens are multiplied with the root of their width."""


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "smollm3": Family(),
    "gemma": Family(norm_offset=1.0, scaled_embedding=True),
}


def read_network(module: nn.Module) -> Network:
    """The model's layers.

    Raises:
        Unsupported: with the reason.
    """
    causal: Any = module
    peft = sys.modules.get("peft")
    if peft is not None and isinstance(module, peft.PeftModel):
        causal = module.get_base_model()
    config = getattr(causal, "config", None)
    family = FAMILIES.get(getattr(config, "model_type", ""))
    if config is None or family is None:
        raise Unsupported(f"{type(causal).__name__} is not one of {', '.join(FAMILIES)}")
    if config.hidden_act not in GATES:
        raise Unsupported(f"activation {config.hidden_act}")
    if config.attention_dropout:
        raise Unsupported("attention dropout")
    head = causal.lm_head
    if type(head) is not nn.Linear or "bias" in dict(head.named_parameters()):
        raise Unsupported("the output embedding has a bias or an adapter")
    body = causal.model
    layers = tuple(_read_layer(layer, config, family, number) for number, layer in enumerate(body.layers))
    embedding = body.embed_tokens.weight
    if embedding.dtype not in (torch.float32, torch.bfloat16):
        raise Unsupported(f"weights in {embedding.dtype}")
    factors = _trainable_factors(module, layers)
    scale = float(config.hidden_size) ** 0.5 if family.scaled_embedding else 1.0
    return Network(
        layers=layers,
        norm=_norm(body.norm, family),
        embedding_VD=embedding,
        # the family multiplies in the type of the weights
        embedding_scale=float(torch.tensor(scale, dtype=embedding.dtype)),
        head_VD=head.weight,
        rotary=body.rotary_emb,
        factors=factors,
    )


def _trainable_factors(module: nn.Module, layers: tuple[Layer, ...]) -> tuple[nn.Parameter, ...]:
    known = {
        id(factor): factor
        for layer in layers
        for projection in layer.projections
        for linear in projection.linears
        for factor in (linear.down, linear.up)
        if factor is not None and factor.requires_grad
    }
    others = [
        name for name, parameter in module.named_parameters() if parameter.requires_grad and id(parameter) not in known
    ]
    if others:
        raise Unsupported(f"{len(others)} trainable weights are not adapters of linear layers, e.g. {others[0]}")
    return tuple(known.values())


def _read_layer(layer: Any, config: Any, family: Family, number: int) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    queries = _linear(attention.q_proj)
    dim = queries.base.out_features // config.num_attention_heads
    heads = Heads(config.num_attention_heads, config.num_key_value_heads, dim, float(attention.scaling))
    has_norms = getattr(attention, "q_norm", None) is not None
    return Layer(
        qkv=Projection([queries, _linear(attention.k_proj), _linear(attention.v_proj)]),
        o=Projection([_linear(attention.o_proj)]),
        gate_up=Projection([_linear(mlp.gate_proj), _linear(mlp.up_proj)]),
        down=Projection([_linear(mlp.down_proj)]),
        norm=_norm(layer.input_layernorm, family),
        mlp_norm=_norm(layer.post_attention_layernorm, family),
        query_norm=_norm(attention.q_norm, family) if has_norms else None,
        key_norm=_norm(attention.k_norm, family) if has_norms else None,
        heads=heads,
        gate=GATES[config.hidden_act],
        rotary=bool(getattr(attention, "use_rope", True)),
        window=_window(config, number),
    )


def _window(config: Any, number: int) -> int | None:
    """Keys that a query of the layer sees at most."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if window is None or (kinds is not None and kinds[number] != "sliding_attention"):
        return None
    return int(window)


def _norm(norm: Any, family: Family) -> RmsNorm:
    eps = getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", None)
    if eps is None or getattr(norm, "bias", None) is not None:
        raise Unsupported(f"norm {type(norm).__name__}")
    weight: Tensor = norm.weight.detach().float()
    return RmsNorm(weight + family.norm_offset, float(eps))


def _linear(layer: Any) -> Linear:
    if type(layer) is nn.Linear:
        return Linear(layer)
    lora = sys.modules.get("peft.tuners.lora.layer")
    if lora is None or not isinstance(layer, lora.Linear):
        raise Unsupported(f"{type(layer).__name__} in place of a linear layer")
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if type(layer.base_layer) is not nn.Linear or len(names) != 1 or len(layer.lora_A) != 1:
        raise Unsupported("a quantised layer, or other than one adapter on it")
    (name,) = names
    if layer.lora_variant or layer.lora_bias.get(name) or layer.fan_in_fan_out:
        raise Unsupported("a kind of LoRA with more than two factors")
    if type(layer.lora_dropout[name]) is not nn.Identity:
        raise Unsupported("LoRA dropout")
    return Linear(layer.base_layer, layer.lora_A[name].weight, layer.lora_B[name].weight, layer, name)
