"""The shape of a model, read from a config or a weight-file header without loading weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ModelKind = Literal["decoder", "encoder", "module"]
"""`decoder`: a causal language model; `encoder`: a text encoder; `module`: a user's own or a built-in nn.Module."""


@dataclass(frozen=True)
class ModelSpec:
    """Shape and place of a model. Zero or None means that the source does not say.

    Args:
        reference: the words of the recipe.
        kind: what the model can be used for.
        family: transformers' `model_type`, e.g. `llama`; the class name for user modules.
        folder: hub-layout folder with the weights; None when they must first be fetched or converted.
        num_parameters: all weights, tied ones counted once.
    """

    reference: str
    kind: ModelKind
    family: str
    folder: Path | None = None
    source: str = "folder"
    """Where the weights come from: hub, folder, gguf, package, file, random."""
    num_parameters: int = 0
    num_layers: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    max_positions: int = 0
    num_experts: int = 0
    num_experts_per_token: int = 0
    tied_embeddings: bool = False
    weight_dtype: str = ""
    weight_bytes: int = 0
    """Bytes of the stored weights."""
    has_chat_template: bool = False
    config: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The raw config (hub layout) or header fields (GGUF), for what is not named above."""
