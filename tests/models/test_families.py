"""Over all families: loss and gradients are transformers' own, and no document sees another."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from galley.data.batch import TokenBatch
from galley.models import layout_choice
from galley.models.decoder import Decoder
from galley.models.layouts import Packed, Padded, Single
from galley.models.network import Network
from galley.models.proof import Proof
from galley.models.spec import ModelSpec
from models.families import FAMILIES, VOCAB, tiny_model

pytestmark = pytest.mark.tiny

# These mix documents when they are packed: ALiBi made from a mask, states that run on, a mask that ignores positions.
LEAKY = {"bloom", "mamba", "mamba2", "lfm2", "mpt", "xglm", "gpt_oss", "bamba"}
LENGTHS = (13, 5, 1, 9)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def documents(seed: int = 0, lengths: Sequence[int] = LENGTHS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCAB, (length,), generator=generator) for length in lengths]


def learned(seed: int = 0, lengths: Sequence[int] = LENGTHS) -> list[Tensor]:
    """Which tokens are learned; never the first, which nothing predicts."""
    generator = torch.Generator().manual_seed(seed + 1)
    masks = [torch.rand(length, generator=generator) < 0.6 for length in lengths]
    for mask in masks:
        mask[0] = False
    return masks


def batch_of(docs: Sequence[Tensor], masks: Sequence[Tensor]) -> TokenBatch:
    bounds = [0]
    for ids in docs:
        bounds.append(bounds[-1] + len(ids))
    ids_T, positions_T = torch.cat(list(docs)), torch.cat([torch.arange(len(ids)) for ids in docs])
    index_N = torch.cat(list(masks)).nonzero()[:, 0] - 1
    return TokenBatch(ids_T, positions_T, tuple(bounds), index_N, ids_T[index_N + 1])


def decoder_of(module: nn.Module, name: str, **options: object) -> tuple[Decoder, list[str]]:
    notes: list[str] = []
    spec = ModelSpec("tiny", "decoder", name)
    made = Decoder(spec, module, None, on_note=lambda kind, text: notes.append(text), **options)  # type: ignore[arg-type]
    return made, notes


def transformers_loss(module: nn.Module, docs: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """Summed NLL of each document alone, through `labels`."""
    total = torch.zeros(())
    for ids, mask in zip(docs, masks, strict=True):
        if mask.any():
            out = module(input_ids=ids[None], labels=torch.where(mask, ids, -100)[None], use_cache=False)
            total = total + out.loss * mask.sum()
    return total


def assert_same_training(module: nn.Module, name: str) -> None:
    docs, masks = documents(), learned()
    reference = copy.deepcopy(module)
    truth = transformers_loss(reference, docs, masks)
    torch.autograd.backward(truth)
    decoder, _ = decoder_of(module, name)
    batch = batch_of(docs, masks)
    loss = -decoder.token_logprobs(batch).sum()
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(truth.item(), rel=1e-5)
    expected = {n: p.grad for n, p in reference.named_parameters() if p.requires_grad}
    norm = torch.stack([g.norm() for g in expected.values() if g is not None]).norm()
    for parameter_name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, parameter_name
            continue
        want = expected[parameter_name]
        if want is None or parameter.grad is None:
            assert want is None or want.norm() == 0, parameter_name
            assert parameter.grad is None or parameter.grad.norm() == 0, parameter_name
            continue
        error = (parameter.grad - want).norm()
        assert error <= 2e-4 * want.norm() + 2e-6 * norm, f"{parameter_name}: {error} of {want.norm()}"


@pytest.mark.parametrize("name", FAMILIES)
def test_full_training_is_transformers_own(name: str) -> None:
    assert_same_training(tiny_model(name), name)


@pytest.mark.parametrize("name", FAMILIES)
def test_lora_training_is_transformers_own(name: str) -> None:
    excluded = {"exclude_modules": ["out_proj"]} if name.startswith("mamba") else {}  # PEFT refuses these
    assert_same_training(with_lora(tiny_model(name), **excluded), name)


def with_lora(module: nn.Module, **options: object) -> nn.Module:
    """PEFT's LoRA on all linear layers, with factors that are not zero."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=6, target_modules="all-linear", task_type="CAUSAL_LM", **options)
    adapted: nn.Module = get_peft_model(module, config)
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return adapted.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_only_leaky_families_are_not_packed(name: str) -> None:
    _, notes = decoder_of(tiny_model(name), name)
    packed = any("documents packed" in text for text in notes)
    assert packed == (name not in LEAKY), notes
    assert packed or any("not packed, since" in text for text in notes)


@pytest.mark.parametrize("backend", ["per document", "sdpa", "eager", "unpacked"])
@pytest.mark.parametrize("name", FAMILIES)
def test_editing_a_document_leaves_others_bitwise_unchanged(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = tiny_model(name)
    own = module.config._attn_implementation
    if backend in ("per document", "sdpa") and own != "sdpa":
        pytest.skip(f"{name} runs {own}")
    if backend == "eager":
        module.set_attn_implementation("eager")
    if backend == "sdpa":
        monkeypatch.setattr(layout_choice, "_tell_documents", lambda network, works: False)
    decoder, _ = decoder_of(module, name, packing=backend != "unpacked")
    docs, masks = documents(), learned()
    edited = [3 + (docs[0] - 2) % (VOCAB - 3), *docs[1:]]
    with torch.no_grad():
        before, after = (decoder.token_logprobs(batch_of(some, masks)) for some in (docs, edited))
    first = int(masks[0].sum())
    assert torch.equal(before[first:], after[first:])
    assert not torch.equal(before[:first], after[:first])


@pytest.mark.parametrize("name", ["bloom", "mamba", "lfm2", "gpt_oss", "mpt"])
def test_a_packed_leak_is_seen(name: str) -> None:
    network = Network(tiny_model(name))
    with torch.no_grad():
        proof = Proof(network, network.hidden)
        assert "changes by" in proof.objection(Packed(by_length=False))
        assert proof.objection(Padded()) == ""
        assert proof.objection(Single()) == ""


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_moe", "opt", "bloom", "mamba2", "gpt_oss"])
def test_the_check_also_judges_bf16_rightly(name: str) -> None:
    _, notes = decoder_of(tiny_model(name, dtype=torch.bfloat16), name)
    assert any("documents packed" in text for text in notes) == (name not in LEAKY), notes


def test_long_documents_do_not_change_the_frequencies_of_short_ones() -> None:
    module = tiny_model("phi3-longrope")
    decoder, _ = decoder_of(module, "phi3")
    lengths = (20, 6)  # 12 positions are the original context
    docs, masks = documents(lengths=lengths), learned(lengths=lengths)
    with torch.no_grad():
        truth = transformers_loss(module, docs, masks)
        mine = -decoder.token_logprobs(batch_of(docs, masks)).sum()
    assert mine.item() == pytest.approx(truth.item(), rel=1e-5)


def test_targets_may_come_in_any_order_and_be_none() -> None:
    for name in ("llama", "bloom"):
        decoder, _ = decoder_of(tiny_model(name), name)
        batch = batch_of(documents(), learned())
        order = torch.randperm(batch.num_targets)
        shuffled = replace(batch, target_index_N=batch.target_index_N[order], target_ids_N=batch.target_ids_N[order])
        torch.testing.assert_close(decoder.token_logprobs(shuffled), decoder.token_logprobs(batch)[order])
        none = replace(batch, target_index_N=batch.target_index_N[:0], target_ids_N=batch.target_ids_N[:0])
        out = decoder.token_logprobs(none)
        assert out.shape == (0,)
        torch.autograd.backward(out.sum())
