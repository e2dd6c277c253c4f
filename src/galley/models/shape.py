"""Read a ModelSpec from a folder in hub layout: config.json and the headers of its safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.models.config_check import check_family, check_size
from galley.models.safetensors_header import WeightSummary, summarise
from galley.models.spec import ModelKind, ModelSpec

_ENCODERS = """albert bert camembert deberta deberta-v2 distilbert electra ernie esm eurobert longformer modernbert
mpnet nomic_bert roberta roformer squeezebert xlm-roberta"""
ENCODER_FAMILIES = frozenset(_ENCODERS.split())
"""Families that read text in both directions, for configs that do not name their architecture."""

# The names that families give to the same number, most usual first.
_NAMES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "vocab_size": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "num_experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk"),
}
_LEAST = {"max_positions": -1, "intermediate_size": 0, "num_experts": 0, "num_experts_per_token": 0}
"""Sizes that may be nothing, and positions that may be without end; of all others there is at least one."""


def read_folder(folder: Path, *, reference: str, source: str) -> ModelSpec:
    """The shape of a model in hub layout.

    Raises:
        GalleyError: `model-invalid` when config or weight headers are missing or damaged, `model-unsupported` when
            the model is neither a decoder nor an encoder of text.
    """
    config = read_config(folder)
    summary = summarise(folder)
    if summary is None:
        raise GalleyError(
            "model-invalid", f"{folder} has no safetensors weights", hint=_weights_hint(folder, reference)
        )
    return spec_from_config(
        config,
        reference=reference,
        source=source,
        folder=folder,
        weights=summary,
        has_chat_template=has_chat_template(folder),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of the folder.

    Raises:
        GalleyError: `model-invalid` when it is missing or not a JSON object.
    """
    return read_json(folder / "config.json")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that must exist.

    Raises:
        GalleyError: `model-invalid` when it is missing or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GalleyError(
            "model-invalid", f"{path.parent} has no {path.name}", hint="a model folder is in hub layout"
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise GalleyError("model-invalid", f"{path} cannot be read: {error}", hint="fetch the model again") from None
    if not isinstance(value, dict):
        raise GalleyError("model-invalid", f"{path} is not a JSON object", hint="fetch the model again")
    return value


def spec_from_config(
    config: Mapping[str, Any],
    *,
    reference: str,
    source: str,
    folder: Path | None = None,
    weights: WeightSummary | None = None,
    has_chat_template: bool = False,
) -> ModelSpec:
    """The shape that a transformers config describes.

    Args:
        config: the content of config.json.
        reference: the words of the recipe.
        source: where the weights come from.
        folder: hub-layout folder, when the weights are there.
        weights: what the weight headers say; counted from the config when None.
        has_chat_template: whether the tokenizer brings one.

    Raises:
        GalleyError: `model-invalid` when its numbers can be of no model, `model-unsupported` for a family that nobody
            can build.
    """
    check_family(config, reference)
    text = {**config, **config["text_config"]} if isinstance(config.get("text_config"), dict) else dict(config)
    for field, names in {**_NAMES, "head_dim": ("head_dim",)}.items():
        check_size(text, names, reference, least=_LEAST.get(field, 1))
    numbers = {field: _number(text, names) for field, names in _NAMES.items()}
    heads = numbers["num_heads"]
    numbers["num_kv_heads"] = numbers["num_kv_heads"] or (1 if text.get("multi_query") else heads)
    numbers["intermediate_size"] = numbers["intermediate_size"] or 4 * numbers["hidden_size"]
    head_dim = _number(text, ("head_dim",)) or (numbers["hidden_size"] // heads if heads else 0)
    spec = ModelSpec(
        reference=reference,
        kind=_kind(config),
        family=str(config.get("model_type", "")),
        folder=folder,
        source=source,
        head_dim=head_dim,
        tied_embeddings=_tied(text, weights),
        weight_dtype=weights.dtype if weights else str(config.get("dtype") or config.get("torch_dtype") or ""),
        weight_bytes=weights.bytes if weights else 0,
        has_chat_template=has_chat_template,
        config=dict(config),
        num_parameters=weights.parameters if weights else 0,
        **numbers,
    )
    return spec if weights else _counted(spec)


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer of the folder brings a chat template, in either of the places where it is kept."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(read_json(path).get("chat_template"))


def count_parameters(spec: ModelSpec) -> int:
    """Weights of a decoder or encoder of this shape, from its numbers alone.

    Exact for Llama-shaped models without biases; within a few per cent for others.
    """
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    attention = hidden * spec.head_dim * (2 * spec.num_heads + 2 * spec.num_kv_heads)
    gated = spec.kind == "decoder" and spec.family not in {
        "gpt2",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "opt",
        "bloom",
        "falcon",
    }
    mlp = (3 if gated else 2) * hidden * ffn
    if spec.num_experts:
        expert = int(spec.config.get("moe_intermediate_size") or ffn)
        mlp = spec.num_experts * (3 * hidden * expert + hidden)
    embeddings = spec.vocab_size * hidden * (1 if spec.tied_embeddings or spec.kind == "encoder" else 2)
    return embeddings + spec.num_layers * (attention + mlp + 2 * hidden) + hidden


def _counted(spec: ModelSpec) -> ModelSpec:
    count = count_parameters(spec)
    bytes_each = 4 if spec.weight_dtype in {"", "float32"} else 2
    return replace(spec, num_parameters=count, weight_bytes=count * bytes_each)


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            return int(max(value))  # one number a layer (openelm, lfm2): the largest decides what fits
    return 0


def _tied(config: Mapping[str, Any], weights: WeightSummary | None) -> bool:
    """Whether input and output embedding are one; where the config is silent, the stored weights tell."""
    if "tie_word_embeddings" in config:
        return bool(config["tie_word_embeddings"])
    return not weights.has_head if weights else True


def _kind(config: Mapping[str, Any]) -> ModelKind:
    """Decoder or encoder, by the architecture that the config names."""
    if config.get("is_encoder_decoder"):
        raise GalleyError(
            "model-unsupported",
            f"{config.get('model_type')} reads with an encoder and writes with a decoder",
            hint="use a decoder (llama, qwen, gemma, ...) to write text, an encoder (bert, ...) to classify it",
        )
    names = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) for name in names):
        return "decoder"
    return "encoder" if config.get("model_type") in ENCODER_FAMILIES else "decoder"


def _weights_hint(folder: Path, reference: str) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        return "only safetensors are read, since pickled weights can run code; convert them first"
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if ggufs:
        return f"name the file: {reference}/{ggufs[0]}"
    return "a model folder holds config.json, *.safetensors and tokenizer.json"
