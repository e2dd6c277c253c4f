"""The shape that is read without weights is the shape of the loaded model."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from galley.base import GalleyError
from galley.models import resolve
from galley.models.config_check import known_families
from galley.models.shape import spec_from_config
from models import hub_folders

pytestmark = pytest.mark.tiny


DECODERS = ("llama", "gpt2", "qwen3", "gemma", "qwen3_moe")


@pytest.mark.parametrize(("family", "tied"), [*product(DECODERS, (True, False)), ("bert", True)])
def test_spec_equals_the_loaded_model(family: str, tied: bool, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"model_type": "banana"}, "model-unsupported", 'model_type "banana"'),
        ({"model_type": "lama"}, "model-unsupported", "did you mean llama?"),
        ({"model_type": None}, "model-invalid", "names no model_type"),
        ({"model_type": 5}, "model-invalid", "model_type: 5; expected a text"),
        ({"architectures": 5}, "model-invalid", "architectures: 5"),
        ({"hidden_size": "x"}, "model-invalid", 'hidden_size: "x"; expected a whole number of at least 1'),
        ({"hidden_size": 1.5}, "model-invalid", "hidden_size: 1.5"),
        ({"hidden_size": True}, "model-invalid", "hidden_size: true"),
        ({"num_hidden_layers": -3}, "model-invalid", "num_hidden_layers: -3"),
        ({"num_hidden_layers": 0}, "model-invalid", "num_hidden_layers: 0"),
        ({"num_attention_heads": 0}, "model-invalid", "num_attention_heads: 0"),
        ({"vocab_size": 10**4000}, "model-invalid", "vocab_size: 1000"),
        ({"head_dim": 0}, "model-invalid", "head_dim: 0"),
        ({"intermediate_size": {"a": 1}}, "model-invalid", "intermediate_size"),
        ({"max_position_embeddings": "long"}, "model-invalid", "max_position_embeddings"),
    ],
)
def test_a_config_of_no_model(changes: dict[str, Any], code: str, words: str, tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(GalleyError) as caught:
        resolve(str(folder))
    assert (caught.value.code, words in caught.value.render()) == (code, True), caught.value.render()
    assert str(folder) in caught.value.message
    assert len(caught.value.render()) < 500


def test_families_are_those_that_transformers_knows() -> None:
    from transformers import CONFIG_MAPPING

    assert known_families() >= set(CONFIG_MAPPING.keys())


def test_families_are_listed_without_importing_anything() -> None:
    code = (
        "import sys; from galley.models.config_check import known_families as known; "
        "print(len(known()), 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, imported = done.stdout.split()
    assert (int(count) > 100, imported) == (True, "False")


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(GalleyError, match="t5") as caught:
        spec_from_config({"model_type": "t5", "is_encoder_decoder": True}, reference="org/t5", source="hub")
    assert caught.value.code == "model-unsupported"
