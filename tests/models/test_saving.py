"""What is saved behaves in other tools as it did in training."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from galley.base import GalleyError
from galley.models import adapters, create, load, load_result, merge, resolve, save, weights_fingerprint
from models import hub_folders

pytestmark = pytest.mark.tiny

IDS = torch.arange(40).view(2, 20) * 7 % 290


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_moe"])
def test_transformers_reads_a_saved_model(family: str, tied: bool, tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "base", family, tie_word_embeddings=tied)))
    module, tokenizer = load(spec, precision="fp32")
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    written = save(module, tokenizer, tmp_path / "result", spec=spec, stop_ids=[1, 2])
    theirs = AutoModelForCausalLM.from_pretrained(written, dtype="auto")
    with torch.inference_mode():
        assert torch.equal(theirs(input_ids=IDS).logits, module(input_ids=IDS).logits)
    assert resolve(str(written)).num_parameters == spec.num_parameters
    assert set(theirs.generation_config.eos_token_id) == {tokenizer.eos_token_id, 1, 2}
    reread = AutoTokenizer.from_pretrained(written)
    assert reread.chat_template == tokenizer.chat_template
    assert reread.encode("2024 问题<|im_end|>") == tokenizer.encode("2024 问题<|im_end|>")
    prompt, settings = IDS[:1, :5], {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(theirs.generate(prompt, **settings), module.generate(prompt, **settings))  # type: ignore[operator]


def test_parameters_that_share_one_buffer_are_saved(tmp_path: Path) -> None:
    """A fast path may keep several weights as views into one buffer."""
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    for layer in module.model.layers:  # type: ignore[union-attr]
        parts = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
        fused = torch.cat([part.weight.detach() for part in parts])
        start = 0
        for part in parts:
            size = part.weight.shape[0]
            part.weight.data = fused[start : start + size]
            start += size
    written = save(module, tokenizer, tmp_path / "result", spec=spec)
    theirs = AutoModelForCausalLM.from_pretrained(written, dtype="auto")
    with torch.inference_mode():
        assert torch.equal(theirs(input_ids=IDS).logits, module(input_ids=IDS).logits)


def test_bf16_on_request(tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    written = save(module, tokenizer, tmp_path / "result", spec=spec, precision="bf16")
    assert resolve(str(written)).weight_dtype == "bfloat16"
    assert json.loads((written / "config.json").read_text())["dtype"] == "bfloat16"
    assert next(module.parameters()).dtype == torch.float32


def test_saving_again_replaces_and_leaves_nothing_aside(tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    (tmp_path / "result" / "model.partial").mkdir(parents=True)
    for _ in range(2):
        save(module, tokenizer, tmp_path / "result", spec=spec)
    assert [item.name for item in (tmp_path / "result").iterdir()] == ["model"]


def test_a_full_disk_leaves_the_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    written = save(module, tokenizer, tmp_path / "result", spec=spec)
    before = weights_fingerprint(written)
    with torch.no_grad():
        next(module.parameters()).add_(1)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(tokenizer), "save_pretrained", full)
    with pytest.raises(GalleyError) as caught:
        save(module, tokenizer, tmp_path / "result", spec=spec)
    assert caught.value.code == "disk-full"
    assert weights_fingerprint(written) == before
    assert [item.name for item in (tmp_path / "result").iterdir()] == ["model"]


def test_an_adapter_refuses_another_base(tmp_path: Path) -> None:
    base = hub_folders.folder(tmp_path / "base")
    spec = resolve(str(base))
    module, tokenizer = load(spec, precision="fp32")
    save(adapters.apply("lora", module), tokenizer, tmp_path / "result", spec=spec)
    shutil.rmtree(base)
    hub_folders.folder(base, "llama", intermediate_size=64)
    with pytest.raises(GalleyError, match="not those") as caught:
        load_result(tmp_path / "result")
    assert caught.value.code == "model-invalid"


def test_peft_reads_a_saved_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    base = hub_folders.folder(tmp_path / "base")
    spec = resolve(str(base))
    module, tokenizer = load(spec, precision="fp32")
    adapted = adapters.apply("lora", module, rank=4)
    with torch.no_grad():
        for key, weight in adapted.named_parameters():
            if "lora_B" in key:
                weight.normal_(0, 0.1)
    written = save(adapted, tokenizer, tmp_path / "result", spec=spec)
    assert json.loads((written / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), written)
    with torch.inference_mode():
        assert torch.equal(theirs.eval()(input_ids=IDS).logits, adapted.eval()(input_ids=IDS).logits)


def test_merging_that_loses_the_tune_is_an_error(tmp_path: Path) -> None:
    """With a bound that float32 itself cannot keep, nothing is left behind that could be mistaken for a result."""
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    adapted = adapters.apply("lora", module, rank=4)
    with torch.no_grad():
        for key, weight in adapted.named_parameters():
            if "lora_B" in key:
                weight.normal_(0, 0.1)
    written = save(adapted, tokenizer, tmp_path / "result", spec=spec)
    with pytest.raises(GalleyError) as caught:
        merge(written, tmp_path / "merged", bound=-1.0)
    assert caught.value.code == "adapter-merge"
    assert not (tmp_path / "merged").exists()


def test_a_tune_finer_than_bf16_is_stored_in_float32(tmp_path: Path) -> None:
    spec = resolve(str(hub_folders.folder(tmp_path / "base")))
    module, tokenizer = load(spec, precision="fp32")
    adapted = adapters.apply("lora", module, rank=4)
    with torch.no_grad():
        for key, weight in adapted.named_parameters():
            if "lora_B" in key:
                weight.normal_(0, 1e-3)
    written = save(adapted, tokenizer, tmp_path / "result", spec=spec)
    notes: list[str] = []
    parity = merge(written, tmp_path / "merged", on_note=lambda kind, text: notes.append(text))
    assert parity.stored == "fp32"
    assert len(notes) == 1
    assert resolve(str(tmp_path / "merged")).weight_dtype == "float32"


def test_created_models_are_a_function_of_the_seed(tmp_path: Path) -> None:
    spec = resolve("random:300k")
    tokenizer = hub_folders.tokenizer()
    first, second, other = (
        create(spec, vocab_size=len(tokenizer), tokenizer=tokenizer, seed=seed) for seed in (1, 1, 2)
    )
    for ours, same, different in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, same)
        assert ours.dim() == 1 or not torch.equal(ours, different)
    size = create(spec, vocab_size=spec.vocab_size, tokenizer=tokenizer, seed=0)
    assert sum(weight.numel() for weight in size.parameters()) == spec.num_parameters
    written = save(first, tokenizer, tmp_path / "result", spec=spec)
    loaded = load_result(tmp_path / "result", precision="fp32")
    assert written.name == "model"
    with torch.inference_mode():
        assert torch.equal(loaded.module(input_ids=IDS).logits, first(input_ids=IDS).logits)
        loss = first(input_ids=IDS, labels=IDS).loss
    assert abs(float(loss) - torch.tensor(float(len(tokenizer))).log()) < 0.2
