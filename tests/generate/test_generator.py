"""The decoder against transformers' own, over families; batching must never show in an answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from galley.base import GalleyError
from galley.generate import Generation, Generator, Sampling
from generate.tiny_models import (
    ALONE,
    EOS,
    TOGETHER,
    Plain,
    WordTokenizer,
    expected_greedy,
    prompts,
    tiny_model,
)

pytestmark = pytest.mark.tiny


def _generator(module: Any, **options: Any) -> Generator:
    return Generator(module, WordTokenizer(), **options)


@pytest.mark.parametrize("family", [*TOGETHER, *ALONE])
def test_greedy_answers_are_those_of_transformers_whatever_they_are_batched_with(family: str) -> None:
    model = tiny_model(family)
    rows = prompts(9)
    expected = expected_greedy(model, rows, 12)
    assert len({token for ids in expected for token in ids}) > 5, "a model that repeats itself proves nothing"
    generator = _generator(model, max_rows=4)
    assert generator.way == ("together" if family in TOGETHER else "one by one")
    answers = generator.generate(rows, Sampling(max_new_tokens=12))
    assert [list(answer.ids) for answer in answers] == expected


def test_every_end_token_of_a_list_ends_an_answer_and_the_same_ids_in_a_prompt_do_not() -> None:
    model = tiny_model("llama")
    rows = prompts(40, seed=3)
    answers = _generator(model).generate(rows, Sampling(max_new_tokens=60))
    ended_by = {answer.ids[-1] for answer in answers if answer.finish == "stop"}
    assert ended_by == set(EOS)
    for answer in answers:
        assert not set(answer.ids[:-1]) & set(EOS)
        assert (answer.finish == "length") == (answer.ids[-1] not in EOS)
    assert any(EOS[0] in row for row in rows)


def test_a_users_module_is_generated_without_a_cache() -> None:
    module = Plain()
    generator = _generator(module)
    assert generator.way == "one by one, without a cache"
    (answer,) = generator.generate([[5, 6, 7]], Sampling(max_new_tokens=8, stop_ids=()))
    ids = [5, 6, 7]
    with torch.no_grad():
        for _ in range(8):
            ids.append(int(module(torch.tensor([ids]))[0, -1].argmax()))
    assert list(answer.ids) == ids[3:]


@pytest.mark.parametrize("family", TOGETHER)
def test_beginnings_that_prompts_share_are_computed_once_and_change_nothing(family: str) -> None:
    model = tiny_model(family)
    beginning = list(range(20, 35))
    rows = [[*beginning, *row] for row in prompts(7)] + [beginning, [*beginning, 50]]
    answers = _generator(model, max_rows=4).generate(rows, Sampling(max_new_tokens=8))
    assert [list(answer.ids) for answer in answers] == expected_greedy(model, rows, 8)


def test_shared_beginnings_save_work() -> None:
    model = tiny_model("llama")
    computed = 0

    def count(_module: Any, args: tuple[torch.Tensor, ...], _options: Any) -> None:
        nonlocal computed
        computed += args[0].numel()

    generator = _generator(model)
    model.register_forward_pre_hook(count, with_kwargs=True)
    generator.generate([[*range(20, 50), n] for n in range(10)], Sampling(max_new_tokens=1))
    assert computed == 30 + 10


@pytest.mark.parametrize("max_rows", [1, 3, 64])
def test_samples_do_not_depend_on_batching(max_rows: int) -> None:
    model = tiny_model("qwen3")
    settings = Sampling(max_new_tokens=10, temperature=0.8, top_k=20, top_p=0.95, repetition_penalty=1.2, seed=5)
    rows = prompts(8)
    alone = [list(_generator(model, max_rows=8).generate(rows, settings)[n].ids) for n in range(8)]
    together = _generator(model, max_rows=max_rows).generate(rows, settings)
    assert [list(answer.ids) for answer in together] == alone
    other = _generator(model).generate(rows, Sampling(max_new_tokens=10, temperature=0.8, seed=6))
    assert [list(answer.ids) for answer in other] != alone


def test_equal_prompts_are_sampled_independently() -> None:
    answers = _generator(tiny_model("llama")).generate([[5, 6]] * 6, Sampling(max_new_tokens=10, temperature=1.0))
    assert len({answer.ids for answer in answers}) > 3


def test_a_small_cache_gives_the_same_answers() -> None:
    model = tiny_model("llama")
    rows = prompts(9)
    wide = _generator(model).generate(rows, Sampling(max_new_tokens=12))
    narrow = _generator(model, max_cache_bytes=20_000).generate(rows, Sampling(max_new_tokens=12))
    assert wide == narrow


def test_answers_are_told_as_they_complete() -> None:
    told: dict[int, Generation] = {}
    rows = prompts(7)
    answers = _generator(tiny_model("gpt2"), max_rows=2).generate(
        rows, Sampling(max_new_tokens=9), on_done=told.__setitem__
    )
    assert [told[n] for n in range(7)] == answers


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_stream_is_the_answer_in_pieces(temperature: float) -> None:
    generator = _generator(tiny_model("llama"))
    settings = Sampling(max_new_tokens=25, temperature=temperature, seed=1)
    for row in prompts(4):
        (answer,) = generator.generate([row], settings)
        pieces = list(generator.stream(row, settings))
        assert "".join(pieces) == answer.text
        assert len(pieces) >= len(answer.ids) - 2


def test_stop_texts_end_answers_and_are_cut_off() -> None:
    generator = _generator(tiny_model("llama"))
    free = generator.generate([[5, 6, 7]], Sampling(max_new_tokens=12, stop_ids=()))[0]
    third = f"w{free.ids[3]} "
    settings = Sampling(max_new_tokens=12, stop_ids=(), stop=("never", third))
    stopped = generator.generate([[5, 6, 7]], settings)[0]
    assert stopped.text == free.text[: free.text.index(third)]
    assert stopped.finish == "stop"
    assert len(stopped.ids) <= 4
    assert "".join(generator.stream([5, 6, 7], settings)) == stopped.text


def test_answers_end_where_the_context_of_the_model_ends() -> None:
    generator = _generator(tiny_model("gpt2"))
    rows = [list(range(4, 64)), [5, 6, 7]]
    long, short = generator.generate(rows, Sampling(max_new_tokens=30, stop_ids=()))
    assert (len(long.ids), long.finish) == (4, "length")
    assert len(short.ids) == 30
    with pytest.raises(GalleyError, match="prompt 1 has 64 tokens, and the model reads 64"):
        generator.generate([[5] * 64], Sampling())
    with pytest.raises(GalleyError, match="prompt 1"):
        generator.stream([5] * 64, Sampling())


def test_an_empty_prompt_starts_from_the_first_token() -> None:
    generator = _generator(tiny_model("llama"))
    settings = Sampling(max_new_tokens=6)
    assert generator.generate([[]], settings) == generator.generate([[WordTokenizer.bos_token_id]], settings)


def test_adapted_models_generate_with_their_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_model("llama"), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    model.train()
    rows = prompts(6)
    adapted = _generator(model).generate(rows, Sampling(max_new_tokens=10))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    merged = model.merge_and_unload().eval()
    assert [list(answer.ids) for answer in adapted] == expected_greedy(merged, rows, 10)
    assert [list(answer.ids) for answer in adapted] != expected_greedy(tiny_model("llama"), rows, 10)


def test_the_head_sees_one_contiguous_position_of_each_row() -> None:
    """A strided slice makes torch copy a frozen head for every row: 2 GiB for 40 rows of a vocabulary of 49,152."""
    model = tiny_model("llama").requires_grad_(False)
    seen: list[tuple[torch.Size, bool]] = []
    model.lm_head.register_forward_pre_hook(lambda _module, args: seen.append((args[0].shape, args[0].is_contiguous())))
    generator = _generator(model)
    seen.clear()
    generator.generate(prompts(5), Sampling(max_new_tokens=3))
    assert seen[0][0] == (5, 1, 32)
    assert all(shape[1] == 1 and contiguous for shape, contiguous in seen)


def test_half_precision_passes_the_check_of_padding() -> None:
    assert _generator(tiny_model("llama").bfloat16()).way == "together"
    assert _generator(tiny_model("mamba").bfloat16()).way == "one by one"


def test_a_model_that_ignores_masks_is_not_batched() -> None:
    from transformers import LlamaForCausalLM

    class Forgetful(LlamaForCausalLM):  # type: ignore[misc]
        def forward(self, *args: Any, attention_mask: Any = None, **options: Any) -> Any:
            return super().forward(*args, **options)

    model = tiny_model("llama")
    model.__class__ = Forgetful
    generator = _generator(model)
    assert generator.way != "together"
    rows = prompts(4)
    plain = tiny_model("llama")
    answers = generator.generate(rows, Sampling(max_new_tokens=8))
    assert [list(answer.ids) for answer in answers] == expected_greedy(plain, rows, 8)
