"""One conformance test over every adapter and unlike families, and the ways in which adapters fail in other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from galley.base import GalleyError
from galley.models import adapters, load, load_result, merge, resolve, save
from models import hub_folders

pytestmark = pytest.mark.tiny

IDS = torch.arange(40).view(2, 20) * 7 % 290
LOW_RANK = [name for name in adapters.registry.names() if name != "full"]
FAMILIES = ["llama", "gpt2", "qwen3", "gemma"]


def _loaded(folder: Path, name: str, **arguments: Any) -> Any:
    quantise = adapters.registry.get(name).quantises_base
    module, _ = load(resolve(str(folder)), precision="fp32", quantise=quantise)
    return adapters.apply(name, module, rank=4, alpha=8.0, seed=5, **arguments)


def _untrained(module: nn.Module) -> list[str]:
    """Trainable weights that the last backward pass did not reach."""
    return [name for name, weight in module.named_parameters() if weight.requires_grad and weight.grad is None]


def _step(module: nn.Module) -> None:
    optimizer = torch.optim.Adam([weight for weight in module.parameters() if weight.requires_grad], lr=0.02)
    for _ in range(3):
        optimizer.zero_grad()
        module(input_ids=IDS, labels=IDS).loss.backward()
        assert _untrained(module) == []
        optimizer.step()


def _logits(module: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return module.eval()(input_ids=IDS).logits.float()  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", adapters.registry.names())
def test_conformance(name: str, family: str, tmp_path: Path) -> None:
    """All that is trainable trains, also after an evaluation; nothing else moves; saved or merged it is the same."""
    folder = hub_folders.folder(tmp_path / "base", family)
    module = _loaded(folder, name)
    trained = {key for key, weight in module.named_parameters() if weight.requires_grad}
    before = {key: weight.detach().clone() for key, weight in module.named_parameters()}
    start = _logits(module)
    _step(module.train())
    for key, weight in module.named_parameters():
        assert torch.equal(weight, before[key]) == (key not in trained), key
    tuned = _logits(module)
    assert (tuned - start).abs().max() > 0.05

    result = tmp_path / "result"
    written = save(module, hub_folders.tokenizer(), result, spec=resolve(str(folder)), stop_ids=[2])
    loaded = load_result(result, precision="fp32")
    assert loaded.is_adapter == (name != "full")
    reloaded = _logits(loaded.module)
    if not adapters.registry.get(name).quantises_base:
        torch.testing.assert_close(reloaded, tuned, rtol=0, atol=1e-5)
    if loaded.is_adapter:
        parity = merge(written, tmp_path / "merged")
        merged, _ = load(resolve(str(tmp_path / "merged")), precision="fp32")
        assert parity.distortion < 0.1
        assert (_logits(merged) - reloaded).abs().max() < 0.25 * (reloaded - _base(loaded.module)).abs().max()


def _base(module: Any) -> torch.Tensor:
    with module.disable_adapter():
        return _logits(module)


@pytest.mark.parametrize("name", LOW_RANK)
def test_low_rank_starts_as_the_base(name: str, tmp_path: Path) -> None:
    module = _loaded(hub_folders.folder(tmp_path / "base"), name)
    torch.testing.assert_close(_logits(module), _base(module), rtol=0, atol=1e-5)


def test_lora_is_pefts_own(tmp_path: Path) -> None:
    """All-linear means the modules that PEFT means, and its matrices come from the seed alone."""
    from peft import LoraConfig, get_peft_model

    folder = hub_folders.folder(tmp_path / "base")
    first, second = _loaded(folder, "lora"), _loaded(folder, "lora")
    base, _ = load(resolve(str(folder)), precision="fp32")
    theirs = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert first.state_dict().keys() == theirs.state_dict().keys()
    for key, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[key])


def test_state_of_the_random_generator_is_left_alone(tmp_path: Path) -> None:
    folder = hub_folders.folder(tmp_path / "base")
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    _loaded(folder, "lora")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("targets", "part"),
    [
        (["q_projj"], "did you mean 'q_proj'"),
        (["q_proj", "nothing_like_it"], "linear layers:"),
        (["input_layernorm"], "linear layers:"),
    ],
)
@pytest.mark.parametrize("name", LOW_RANK)
def test_targets_that_match_nothing(name: str, targets: list[str], part: str, tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        _loaded(hub_folders.folder(tmp_path / "base"), name, targets=targets)
    assert caught.value.code == "adapter-targets"
    assert part in caught.value.hint


@pytest.mark.parametrize("targets", [["q_proj"], ["layers.1.mlp.up_proj", "v_proj"], "down_proj"])
def test_named_targets_alone_get_matrices(targets: list[str] | str, tmp_path: Path) -> None:
    module = _loaded(hub_folders.folder(tmp_path / "base"), "lora", targets=targets)
    names = [targets] if isinstance(targets, str) else targets
    trained = {key for key, weight in module.named_parameters() if weight.requires_grad}
    assert trained
    assert all(any(f"{name}.lora_" in key for name in names) for key in trained)


@pytest.mark.parametrize("name", ["full", "lora", "dora"])
def test_nothing_trains_in_float16(name: str, tmp_path: Path) -> None:
    module, _ = load(resolve(str(hub_folders.folder(tmp_path / "base"))), precision="fp16")
    module = adapters.apply(name, module)
    assert {weight.dtype for weight in module.parameters() if weight.requires_grad} == {torch.float32}


def test_adapters_are_float32_beside_bf16(tmp_path: Path) -> None:
    module, _ = load(resolve(str(hub_folders.folder(tmp_path / "base"))), precision="bf16")
    module = adapters.apply("lora", module)
    dtypes = {weight.requires_grad: weight.dtype for weight in module.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_experts_are_said_to_stay_frozen(tmp_path: Path) -> None:
    notes: list[str] = []
    module, _ = load(resolve(str(hub_folders.folder(tmp_path / "base", "qwen3_moe"))))
    adapters.apply("lora", module, on_note=lambda kind, text: notes.append(text))
    assert len(notes) == 1
    assert "experts" in notes[0]


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("name", LOW_RANK)
def test_classification_heads_train_and_come_back(name: str, family: str, tmp_path: Path) -> None:
    labels = ("no", "yes")
    spec = resolve(str(hub_folders.folder(tmp_path / "base", family)))
    quantise = adapters.registry.get(name).quantises_base
    module, tokenizer = load(spec, precision="fp32", labels=labels, seed=3, quantise=quantise)
    module = adapters.apply(name, module, rank=4)
    heads = [key for key, weight in module.named_parameters() if weight.requires_grad and "lora" not in key]
    assert any("classifier" in key or "score" in key for key in heads)
    arguments = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    optimizer = torch.optim.Adam([weight for weight in module.parameters() if weight.requires_grad], lr=0.05)
    module(**arguments, labels=torch.tensor([0, 1])).loss.backward()
    assert _untrained(module) == []
    optimizer.step()
    save(module, tokenizer, tmp_path / "result", spec=spec, labels=labels)
    loaded = load_result(tmp_path / "result", precision="fp32")
    assert loaded.labels == labels
    with torch.inference_mode():
        difference = loaded.module(**arguments).logits - module.eval()(**arguments).logits
    assert difference.abs().max() < (0.2 if quantise else 1e-6)


def test_users_modules_can_be_adapted(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    adapted = adapters.apply("lora", net, rank=2)
    adapted(torch.ones(2, 4)).sum().backward()
    assert _untrained(adapted) == []
