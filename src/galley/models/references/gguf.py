"""A `.gguf` file: converted once to hub layout when it is loaded; its header is enough to plan with."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.base.remembered import remembered
from galley.models.cache import converted_folder
from galley.models.spec import ModelKind, ModelSpec

if TYPE_CHECKING:
    from galley.models.gguf_header import GgufHeader

# llama.cpp's architecture names where they differ from transformers' model types.
_FAMILIES = {
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "gptneox": "gpt_neox",
    "deepseek2": "deepseek_v2",
    "command-r": "cohere",
    "nomic-bert": "nomic_bert",
}


class GgufReference:
    """`model.gguf`."""

    order = 20
    form = "a .gguf file"

    def accepts(self, reference: str) -> bool:
        """Words that end in .gguf, unless they name a file inside a package."""
        return reference.lower().endswith(".gguf") and not reference.startswith("package:")

    def resolve(self, reference: str) -> ModelSpec:
        """The shape from the file's header."""
        return gguf_spec(Path(reference).expanduser(), reference=reference, source="gguf")


def gguf_spec(path: Path, *, reference: str, source: str) -> ModelSpec:
    """The shape of a GGUF file; its folder is set when the file was converted before.

    Raises:
        GalleyError: `model-not-found`, `model-invalid`, or `model-unsupported` for one part of several.
    """
    if not path.is_file():
        raise GalleyError("model-not-found", f"there is no file {path}", hint="check the path of the .gguf file")
    spec = ModelSpec(**remembered(path, "spec", _read_facts))
    folder = converted_folder(path)
    return replace(spec, reference=reference, source=source, folder=folder if folder.is_dir() else None)


def _read_facts(path: Path) -> dict[str, Any]:
    """The fields of the file's spec, from its header."""
    from galley.models.gguf_header import read_gguf_header

    header = read_gguf_header(path)
    if header.number("split.count") > 1:
        hint = "join the parts with llama-gguf-split --merge, or take the model in hub layout"
        raise GalleyError("model-unsupported", f"{path} is one part of {header.number('split.count')}", hint=hint)
    return asdict(spec_from_gguf(header, reference=str(path), source="gguf"))


def spec_from_gguf(header: GgufHeader, *, reference: str, source: str) -> ModelSpec:
    """Header fields in the words of ModelSpec."""
    architecture = header.text("general.architecture")
    family = _FAMILIES.get(architecture, architecture)
    kind: ModelKind = "encoder" if "bert" in architecture else "decoder"
    heads = header.number(f"{architecture}.attention.head_count")
    hidden = header.number(f"{architecture}.embedding_length")
    embedding = header.tensors.get("token_embd.weight")
    return ModelSpec(
        reference=reference,
        kind=kind,
        family=family,
        source=source,
        num_parameters=sum(tensor.parameters for name, tensor in header.tensors.items() if "rope_" not in name),
        num_layers=header.number(f"{architecture}.block_count"),
        hidden_size=hidden,
        intermediate_size=header.number(f"{architecture}.feed_forward_length"),
        num_heads=heads,
        num_kv_heads=header.number(f"{architecture}.attention.head_count_kv") or heads,
        head_dim=header.number(f"{architecture}.attention.key_length") or (hidden // heads if heads else 0),
        # ggml writes the fastest axis first: the embedding is [hidden, vocabulary].
        vocab_size=embedding.shape[-1] if embedding else header.number(f"{architecture}.vocab_size"),
        max_positions=header.number(f"{architecture}.context_length"),
        num_experts=header.number(f"{architecture}.expert_count"),
        num_experts_per_token=header.number(f"{architecture}.expert_used_count"),
        tied_embeddings=kind == "decoder" and "output.weight" not in header.tensors,
        weight_dtype=header.common_type,
        weight_bytes=header.tensor_bytes,
        has_chat_template="tokenizer.chat_template" in header.fields,
        config={**header.fields, "gguf_file": str(header.path.resolve())},
    )


REFERENCE = GgufReference()
