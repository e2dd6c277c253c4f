"""The decoder's options, odd heads and users' own modules: always the loss and gradients of the plain model."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from galley.models.padding import groups_of_similar_length
from models.families import VOCAB, tiny_model
from models.test_families import assert_same_training, batch_of, decoder_of, documents, learned, with_lora

pytestmark = pytest.mark.tiny


def gradients(module: nn.Module, loss: Tensor) -> list[Tensor]:
    grads = torch.autograd.grad(loss, [p for p in module.parameters() if p.requires_grad], allow_unused=True)
    return [torch.zeros(1) if g is None else g for g in grads]


@pytest.mark.parametrize("name", ["llama-tied", "gpt2", "gemma2", "mamba", "bloom"])
def test_recomputing_layers_changes_no_gradient(name: str) -> None:
    batch = batch_of(documents(), learned())
    results = []
    for checkpointing in ("none", "full"):
        module = tiny_model(name).train()
        for dropout in (m for m in module.modules() if isinstance(m, nn.Dropout)):
            dropout.p = 0.0
        decoder, _ = decoder_of(module, name, checkpointing=checkpointing)
        results.append(gradients(module, decoder.token_logprobs(batch).sum()))
    for kept, recomputed in zip(*results, strict=True):
        torch.testing.assert_close(recomputed, kept, rtol=1e-5, atol=1e-6)


def test_recomputing_layers_keeps_two_forward_passes_apart() -> None:
    """Preference methods run two batches before one backward pass."""
    module = tiny_model("llama").train()
    decoder, _ = decoder_of(module, "llama", checkpointing="full")
    one, two = batch_of(documents(), learned()), batch_of(documents(1, (4, 9)), learned(1, (4, 9)))
    together = gradients(module, decoder.token_logprobs(one).sum() - decoder.token_logprobs(two).sum())
    apart = [gradients(module, decoder.token_logprobs(batch).sum()) for batch in (one, two)]
    for both, first, second in zip(together, *apart, strict=True):
        torch.testing.assert_close(both, first - second, rtol=1e-4, atol=1e-5)


def test_building_twice_changes_nothing() -> None:
    module = with_lora(tiny_model("llama"))
    batch = batch_of(documents(), learned())
    first, notes = decoder_of(module, "llama")
    before = first.token_logprobs(batch)
    second, again = decoder_of(module, "llama")
    assert torch.equal(second.token_logprobs(batch), before)
    assert notes[0].split(";")[0] == again[0].split(";")[0]


def test_generation_after_training_uses_the_models_own_masks() -> None:
    """Left-padded prompts, as decoding makes them, must still be masked."""
    plain: Any = tiny_model("llama")
    module: Any = copy.deepcopy(plain)
    decoder_of(module, "llama")
    ids = torch.tensor([[0, 0, 5, 6, 7], [4, 8, 15, 16, 23]])
    mask = (ids != 0).long()
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    got, want = (m.generate(input_ids=ids, attention_mask=mask, **settings) for m in (module, plain))
    assert torch.equal(got, want)


def test_modes_are_put_back() -> None:
    module: Any = tiny_model("llama").train()
    module.model.layers[0].eval()
    modes = [m.training for m in module.modules()]
    decoder_of(module, "llama")
    assert [m.training for m in module.modules()] == modes


def test_an_adapted_head_trains() -> None:
    from peft import LoraConfig, get_peft_model

    module: Any = get_peft_model(
        tiny_model("llama"), LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    )
    assert_same_training(module.eval(), "llama")
    assert module.base_model.model.lm_head.lora_A["default"].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("what", ["head", "embedding", "norms"])
def test_a_part_that_trains_alone(what: str) -> None:
    module: Any = tiny_model("llama-tied" if what == "embedding" else "llama").requires_grad_(False)
    parts = {
        "head": [module.lm_head],
        "embedding": [module.model.embed_tokens],
        "norms": [m for n, m in module.named_modules() if n.endswith("norm")],
    }
    for part in parts[what]:
        part.requires_grad_(True)
    assert_same_training(module, "llama")


class Bigram(nn.Module):
    """A user's model: tensors in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.mix = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.out(self.mix(self.embed(ids))[0])
        return out


class Wrapped(nn.Module):
    """The same with logits in an object, and state across rows of a batch, which padding would spoil."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Bigram()

    def forward(self, ids: Tensor) -> SimpleNamespace:
        logits = self.inner(ids)
        return SimpleNamespace(logits=logits + logits.mean((0, 1), keepdim=True) * (len(ids) - 1))


@pytest.mark.parametrize(("kind", "layout"), [(Bigram, "padded"), (Wrapped, "one document at a time")])
def test_users_modules_are_padded_or_run_one_by_one(kind: type[nn.Module], layout: str) -> None:
    torch.manual_seed(0)
    module = kind()
    decoder, notes = decoder_of(module, kind.__name__)
    assert any(f"documents {layout}" in text for text in notes), notes
    docs, masks = documents(), learned()
    truth = torch.zeros(())
    for ids, mask in zip(docs, masks, strict=True):
        logits = module(ids[None])
        logits = logits if isinstance(logits, Tensor) else logits.logits
        truth = truth + logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0][mask[1:]].sum()
    mine = decoder.token_logprobs(batch_of(docs, masks)).sum()
    torch.testing.assert_close(mine, truth)
    for got, want in zip(gradients(module, mine), gradients(module, truth), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_the_result_saves_and_loads_in_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    module: Any = tiny_model("llama")
    decoder_of(module, "llama")
    module.save_pretrained(tmp_path)
    ids = torch.arange(3, 9)[None]
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(reloaded(ids).logits, module(ids).logits)


def test_groups_hold_every_document_once_with_little_padding() -> None:
    lengths = [70, 5, 64, 300, 61, 6, 1]
    groups = list(groups_of_similar_length(lengths))
    assert sorted(d for group in groups for d in group) == list(range(len(lengths)))
    for group in groups:
        own = [lengths[d] for d in group]
        assert max(own) * len(own) <= 1.25 * sum(own)
