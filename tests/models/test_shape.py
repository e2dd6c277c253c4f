"""The shape that is read without weights is the shape of the loaded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from galley.base import GalleyError
from galley.models import resolve
from galley.models.shape import spec_from_config
from models import hub_folders

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma", "qwen3_moe", "bert"])
def test_spec_equals_the_loaded_model(family: str, tied: bool, tmp_path: Path) -> None:
    if family == "bert" and not tied:
        pytest.skip("an encoder has no output embedding")
    folder = hub_folders.folder(tmp_path / "model", family, tie_word_embeddings=tied)
    module = hub_folders.model(family, tie_word_embeddings=tied)
    spec = resolve(str(folder))
    assert spec.num_parameters == sum(weight.numel() for weight in module.parameters())
    assert spec.weight_bytes == 4 * spec.num_parameters
    assert spec.weight_dtype == "float32"
    assert (spec.family, spec.kind) == (family, "encoder" if family == "bert" else "decoder")
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.head_dim) == (2, 32, 4, 8)
    assert spec.vocab_size == len(hub_folders.tokenizer())
    assert spec.max_positions == 128
    assert spec.tied_embeddings == tied
    assert spec.has_chat_template
    assert spec.num_experts == (4 if family == "qwen3_moe" else 0)


@pytest.mark.parametrize(("family", "tolerance"), [("llama", 0), ("gemma", 0), ("qwen3", 0.01), ("gpt2", 0.15)])
def test_parameters_are_counted_from_a_config_alone(family: str, tolerance: float) -> None:
    module = hub_folders.model(family)
    spec = spec_from_config(module.config.to_dict(), reference="org/name", source="hub")
    counted = sum(weight.numel() for weight in module.parameters())
    assert spec.num_parameters == pytest.approx(counted, rel=tolerance)


def _break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{not json")


def _drop_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _lose_a_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (_break_config, "config.json"),
        (_drop_config, "config.json"),
        (_cut_weights, "should have"),
        (_pickle_weights, "no safetensors"),
        (_lose_a_shard, "model-00002-of-00002"),
    ],
)
def test_damaged_folders(damage: Any, part: str, tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    damage(folder)
    with pytest.raises(GalleyError, match=part) as caught:
        resolve(str(folder))
    assert caught.value.code == "model-invalid"


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(GalleyError, match="t5") as caught:
        spec_from_config({"model_type": "t5", "is_encoder_decoder": True}, reference="org/t5", source="hub")
    assert caught.value.code == "model-unsupported"
