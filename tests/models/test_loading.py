"""Loading gives transformers' own model, refuses what is damaged, and never writes to the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from galley.base import GalleyError
from galley.models import load, resolve, weights_fingerprint
from models import hub_folders

pytestmark = pytest.mark.tiny

IDS = torch.arange(40).view(2, 20) * 7 % 290


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma", "qwen3_moe"])
def test_logits_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model", family)
    module, tokenizer = load(resolve(str(folder)), precision="fp32")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        assert torch.equal(module(input_ids=IDS).logits, theirs(input_ids=IDS).logits)
    assert not module.training
    assert tokenizer.chat_template == hub_folders.CHATML
    text = "naïve 问题 2024"
    assert tokenizer.encode(text) == hub_folders.tokenizer().encode(text)


def test_precision_is_the_dtype(tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "model")))
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        module, _ = load(spec, precision=precision)  # type: ignore[arg-type]
        assert {weight.dtype for weight in module.parameters()} == {dtype}


def test_training_in_place_leaves_the_files_alone(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    before = weights_fingerprint(folder)
    module, _ = load(resolve(str(folder)), precision="fp32")
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(1.0)
    assert weights_fingerprint(folder) == before


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_classification_head_depends_on_the_seed_alone(family: str, tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "model", family)))
    ids = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    outputs: list[torch.Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed + len(outputs))
        module, _ = load(spec, precision="fp32", labels=("no", "yes", "maybe"), seed=seed)
        assert module.config.id2label == {0: "no", 1: "yes", 2: "maybe"}  # type: ignore[union-attr]
        with torch.inference_mode():
            outputs.append(module(**ids).logits)
    assert outputs[0].shape == (2, 3)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(GalleyError, match=r"layers\.1\.mlp\.up_proj") as caught:
        load(resolve(str(folder)))
    assert caught.value.code == "model-invalid"


def test_code_that_a_model_brings_is_never_run(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    mark = tmp_path / "mark"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(GalleyError) as caught:
        load(resolve(str(folder)))
    assert caught.value.code in {"model-unsupported", "model-invalid"}
    assert not mark.exists()


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(GalleyError, match="tokenizer") as caught:
        load(resolve(str(folder)))
    assert caught.value.code == "model-invalid"


def test_fingerprint_changes_with_any_small_weight(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "model")
    before = weights_fingerprint(folder)
    assert before.startswith("complete:")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] += 1e-3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert weights_fingerprint(folder) != before


def test_fingerprint_of_large_files_is_sampled_and_sees_training(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    weights = {"w": torch.zeros(16, 2**20)}
    save_file(weights, path)
    before = weights_fingerprint(tmp_path)
    assert before.startswith("sampled:")
    weights["w"][7] += 1e-3
    save_file(weights, path)
    assert weights_fingerprint(tmp_path) != before
