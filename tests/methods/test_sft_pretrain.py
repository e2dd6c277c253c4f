"""The loss of language methods: transformers' own as a sum, whatever way a step is split (items 1, 2, 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from data.chat_templates import tokenizer_of, turns
from galley.base import GalleyError
from galley.data.batch import TokenBatch
from galley.data.examples import Completion, Conversation, Document, Example
from galley.methods import Encoding, registry
from galley.models.spec import ModelSpec

pytestmark = pytest.mark.tiny


@dataclass
class OneByOne:
    """A language model that computes each document alone: slow, and obviously right."""

    module: nn.Module
    spec: ModelSpec
    tokenizer: Any

    def token_logprobs(self, batch: TokenBatch) -> Tensor:
        parts = []
        for start, stop in zip(batch.bounds, batch.bounds[1:], strict=False):
            logits = self.module(batch.ids_T[None, start:stop]).logits[0].float()
            parts.append(logits.log_softmax(-1))
        return torch.cat(parts)[batch.target_index_N, batch.target_ids_N]


def model(tokenizer: Any) -> OneByOne:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return OneByOne(LlamaForCausalLM(config), ModelSpec("tiny", "decoder", "llama"), tokenizer)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny products are slower on many threads, and slowest where tests share the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


TALK: list[Example] = [Conversation(turns("Hi" * n, "Ho " * n, "And?", "Bye " * (3 * n % 7 + 1))) for n in range(1, 9)]
TEXTS: list[Example] = [Document("Anna is the mother of Bert. " * n) for n in range(1, 9)]


def cases() -> list[Any]:
    return [
        pytest.param("sft", {}, TALK, id="sft"),
        pytest.param("sft", {"train_on": "last"}, TALK, id="sft-last"),
        pytest.param("sft", {"train_on": "all"}, TALK, id="sft-all"),
        pytest.param("pretrain", {}, TEXTS, id="pretrain"),
        pytest.param("pretrain", {}, [Completion("2 + 2 =", " 4" * n) for n in range(1, 9)], id="pretrain-prompt"),
    ]


@pytest.mark.parametrize(("name", "options", "examples"), cases())
def test_loss_is_transformers_own(
    name: str, options: dict[str, str], examples: list[Example], cache_folder: Path
) -> None:
    entry = registry.get(name)
    method, tokenizer = entry(entry.Config(**options)), tokenizer_of("llama3")
    samples: Any = method.encode(examples, Encoding(tokenizer, max_length=64))
    net = model(tokenizer)
    loss = method.loss(net, method.batch(samples, range(len(samples))))
    total, count = 0.0, 0
    for row in range(len(samples)):
        ids = torch.from_numpy(samples.ids(row).astype("int64"))[None]
        learn = torch.from_numpy(samples.mask(row))[None]
        labels = ids.where(learn, torch.tensor(-100))
        total += float(net.module(ids, labels=labels).loss.detach()) * int(learn.sum())
        count += int(learn.sum())
    assert loss.denominator == count == samples.report.supervised_tokens
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(("name", "options", "examples"), cases())
def test_step_does_not_depend_on_how_it_is_split(
    name: str, options: dict[str, str], examples: list[Example], cache_folder: Path
) -> None:
    entry = registry.get(name)
    method, tokenizer = entry(entry.Config(**options)), tokenizer_of("llama3")
    samples: Any = method.encode(examples, Encoding(tokenizer, max_length=64))
    net = model(tokenizer)

    def gradient(split: Sequence[Sequence[int]]) -> Tensor:
        net.module.zero_grad()
        units = 0
        for rows in split:
            loss = method.loss(net, method.batch(samples, rows))
            loss.total.backward()  # type: ignore[no-untyped-call]
            units += loss.denominator
        return torch.cat([p.grad.flatten() / units for p in net.module.parameters() if p.grad is not None])

    whole = gradient([range(8)])
    assert whole.abs().max() > 1e-3
    for split in ([[i] for i in range(8)], [[0, 1], [2, 3], [4, 5], [6, 7]], [[7, 0, 2], [1, 3, 4], [5, 6]]):
        assert torch.allclose(gradient(split), whole, atol=1e-6)


def test_wrong_kind_of_rows_is_refused_with_the_right_task(cache_folder: Path) -> None:
    encoding = Encoding(tokenizer_of("chatml"), max_length=64)
    for name, rows, hint in (("sft", TEXTS, "task: complete"), ("pretrain", TALK, "task: chat")):
        entry = registry.get(name)
        with pytest.raises(GalleyError) as caught:
            entry(entry.Config()).encode(rows, encoding)
        assert caught.value.code == "data-format"
        assert hint in caught.value.hint


def test_prompts_of_completions_are_context_for_sft_and_learned_by_pretrain(cache_folder: Path) -> None:
    encoding = Encoding(tokenizer_of("chatml"), max_length=64)
    rows: list[Example] = [Completion("The mother of Anna is", " Bert.")]
    counts = {}
    for name, options in (("sft", {}), ("pretrain", {}), ("pretrain", {"train_on": "completion"})):
        entry = registry.get(name)
        samples = entry(entry.Config(**options)).encode(rows, encoding)
        counts[name, *options] = samples.report.supervised_tokens, samples.report.tokens_in
    assert counts["sft",] == counts["pretrain", "train_on"]
    assert counts["pretrain",][0] == counts["pretrain",][1] - 1
    assert counts["sft",][0] < counts["pretrain",][0]
