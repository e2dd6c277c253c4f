"""The hand-written step says what transformers and PEFT say of each document alone, and so do its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from galley.data.batch import TokenBatch
from galley.models import compiled
from galley.models.base import LanguageModel
from galley.models.fast import attention, lanes
from galley.models.fast.llama import FastLlama

pytestmark = pytest.mark.tiny

VOCAB = 96
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-tied": {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "llama-llama3": {"rope_parameters": LLAMA3, "num_key_value_heads": 4},
    "llama-yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0}},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 6},
    "gemma": {"head_dim": 16, "tie_word_embeddings": True},
    "smollm3": {"no_rope_layer_interval": 2, "num_hidden_layers": 3},
}


@dataclass(frozen=True)
class Document:
    ids: tuple[int, ...]
    learned: tuple[int, ...]
    """Places whose next token is learned."""


def module_of(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A tiny model with random weights, biases, norms and adapters."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = AutoConfig.for_model(family.split("-", maxsplit=1)[0], **{**sizes, **FAMILIES[family]})
    module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn(parameter.shape) * (0.15 if parameter.dim() == 2 else 0.3))
            if "norm" in name and family != "gemma":
                parameter.add_(1)
    module = get_peft_model(module, LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", **changes}))
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.2)
        if "lora_" in name:
            parameter.data = parameter.data.float()
    return module


def fast_of(module: nn.Module, **changes: Any) -> FastLlama:
    model = SimpleNamespace(spec=None, module=module, tokenizer=None, release=lambda: None)
    fast = FastLlama.build(cast(LanguageModel, model), **changes)
    assert isinstance(fast, FastLlama), fast
    return fast


def documents(lengths: Sequence[int], prefix: int = 0, seed: int = 0) -> list[Document]:
    """Random documents of the given lengths; about a third of the places is learned, in one document none."""
    random = torch.Generator().manual_seed(seed)
    shared = torch.randint(3, VOCAB, (prefix,), generator=random).tolist()
    result = []
    for number, length in enumerate(lengths):
        own = torch.randint(3, VOCAB, (length + 1,), generator=random).tolist()
        places = torch.nonzero(torch.rand(prefix + length, generator=random) < 0.3).flatten().tolist()
        learned = () if number == 3 else (*places[:-1], prefix + length - 1)
        result.append(Document((*shared, *own), tuple(sorted(set(learned)))))
    return result


def batch_of(rows: Sequence[Document]) -> TokenBatch:
    bounds, index, targets = [0], [], []
    for row in rows:
        index += [bounds[-1] + place for place in row.learned]
        targets += [row.ids[place + 1] for place in row.learned]
        bounds.append(bounds[-1] + len(row.ids))
    ids = torch.tensor([token for row in rows for token in row.ids])
    positions = torch.cat([torch.arange(len(row.ids)) for row in rows])
    return TokenBatch(ids, positions, tuple(bounds), torch.tensor(index, dtype=torch.long), torch.tensor(targets))


def alone(module: Any, rows: Sequence[Document]) -> Tensor:
    """The oracle: transformers on one document after the other."""
    values = []
    for row in rows:
        logits = module(input_ids=torch.tensor([row.ids]), use_cache=False).logits[0].float()
        for place in row.learned:
            values.append(torch.log_softmax(logits[place], -1)[row.ids[place + 1]])
    return torch.stack(values)


def gradients(module: nn.Module, logprobs: Tensor) -> dict[str, Tensor]:
    """Of an arbitrary loss over the log-probabilities."""
    module.zero_grad()
    (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def worst(mine: dict[str, Tensor], truth: dict[str, Tensor]) -> float:
    assert mine.keys() == truth.keys()
    return max(float((mine[n] - truth[n]).norm() / truth[n].norm().clamp(min=1e-12)) for n in truth)


@pytest.fixture(autouse=True)
def _two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["one lane", "two lanes"])
def _lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two lanes":
        monkeypatch.setattr(lanes, "_MIN_LANE_TOKENS", 8)


@pytest.mark.usefixtures("_lanes")
@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_transformers_and_peft(family: str, prefix: int) -> None:
    module = module_of(family)
    rows = documents([9, 20, 8, 7, 30, 1, 2], prefix)
    truth = alone(module, rows)
    true_grads = gradients(module, truth)
    fast = fast_of(module, shared_prefix=prefix > 0)
    batch = batch_of(rows)
    logprobs = fast.token_logprobs(batch)
    torch.testing.assert_close(logprobs, truth, rtol=1e-5, atol=1e-5)
    assert worst(gradients(module, logprobs), true_grads) < 2e-5
    with torch.no_grad():
        torch.testing.assert_close(fast.token_logprobs(batch), truth.detach(), rtol=1e-5, atol=1e-5)


def tokens_of(lane: lanes.LaneBatch) -> int:
    """Tokens of real documents."""
    return lane.source_T.numel() - lane.fillers


def test_the_prefix_is_computed_once_per_lane() -> None:
    batch = batch_of(documents([9, 20, 8, 5, 30], prefix=12))
    (lane,) = lanes.lanes_of(batch, threads=1, shared_prefix=True)
    (whole,) = lanes.lanes_of(batch, threads=1, shared_prefix=False)
    assert lane.prefix == 12
    assert tokens_of(whole) - tokens_of(lane) == 12 * 3  # four documents have targets


def test_long_documents_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("mistral")
    rows = documents([41, 3, 17], prefix=9)
    truth = alone(module, rows)
    true_grads = gradients(module, truth)
    monkeypatch.setattr(attention, "_BLOCK", 8)
    for shared_prefix in (False, True):
        fast = fast_of(module, shared_prefix=shared_prefix)
        logprobs = fast.token_logprobs(batch_of(rows))
        torch.testing.assert_close(logprobs, truth, rtol=1e-5, atol=1e-5)
        assert worst(gradients(module, logprobs), true_grads) < 2e-5
        fast.release()


@pytest.mark.parametrize("loops", [True, False])
def test_bfloat16_is_as_near_to_float32_as_the_general_path(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "usable", lambda: loops)  # without numba torch does the same
    exact, module = module_of("llama"), module_of("llama", torch.bfloat16)
    rows = documents([9, 20, 8, 5, 30])
    reference = alone(exact, rows)
    true_grads = gradients(exact, reference)
    general = alone(module, rows)
    general_grads = gradients(module, general)
    logprobs = fast_of(module).token_logprobs(batch_of(rows))
    assert (logprobs - reference).norm() < 1.5 * (general - reference).norm()
    assert worst(gradients(module, logprobs), true_grads) < 1.5 * worst(general_grads, true_grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_runs_are_equal_to_the_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_MIN_LANE_TOKENS", 8)
    batch = batch_of(documents([9, 20, 8, 5, 30], prefix=7))
    results = []
    for _ in range(2):
        module = module_of("llama", dtype)
        fast = fast_of(module, shared_prefix=True)
        # leaves its numbers in the buffers
        fast.token_logprobs(batch_of(documents([40, 3]))).sum().backward()  # type: ignore[no-untyped-call]
        logprobs = fast.token_logprobs(batch)
        results.append((logprobs, gradients(module, logprobs)))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(results[0][1][name], grad) for name, grad in results[1][1].items())


def test_gradients_do_not_depend_on_how_a_step_is_split() -> None:
    module = module_of("llama")
    rows = documents([9, 20, 8, 5, 30, 4, 11, 6])
    fast = fast_of(module, shared_prefix=True)

    def total(parts: Sequence[Sequence[Document]]) -> dict[str, Tensor]:
        module.zero_grad()
        for part in parts:
            (-fast.token_logprobs(batch_of(part)).sum()).backward()  # type: ignore[no-untyped-call]
        return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}

    assert worst(total([rows[:4], rows[4:]]), total([rows])) < 1e-6


def test_two_graphs_may_wait_for_their_backward_passes() -> None:
    module = module_of("llama")
    fast = fast_of(module)
    first, second = batch_of(documents([9, 20, 8])), batch_of(documents([5, 30], seed=1))
    apart = gradients(module, fast.token_logprobs(first)), gradients(module, fast.token_logprobs(second))
    one, two = fast.token_logprobs(first), fast.token_logprobs(second)
    with torch.no_grad():
        fast.token_logprobs(batch_of(documents([40, 2], seed=2)))
    assert worst(gradients(module, two), apart[1]) == 0
    assert worst(gradients(module, one), apart[0]) == 0


def test_no_targets_and_single_tokens() -> None:
    module = module_of("llama")
    fast = fast_of(module, shared_prefix=True)
    rows = [Document((5, 6), ()), Document((7,), ())]
    nothing = fast.token_logprobs(batch_of(rows))
    assert nothing.shape == (0,)
    nothing.sum().backward()  # type: ignore[no-untyped-call]
    assert all(not p.grad.any() for p in module.parameters() if p.grad is not None)
    rows.append(Document((5, 6), (0,)))
    torch.testing.assert_close(fast.token_logprobs(batch_of(rows)), alone(module, rows), rtol=1e-5, atol=1e-5)


def test_an_adapter_that_is_switched_off_is_not_there() -> None:
    module = module_of("llama")
    fast, rows = fast_of(module), documents([9, 20, 8])
    with module.disable_adapter(), torch.no_grad():
        base = alone(module, rows)
        torch.testing.assert_close(fast.token_logprobs(batch_of(rows)), base, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert not torch.allclose(fast.token_logprobs(batch_of(rows)), base)


def test_the_module_shares_its_weights_and_gets_them_back() -> None:
    module = module_of("qwen2")
    rows = documents([9, 20])
    with torch.no_grad():
        before, state = alone(module, rows), {k: v.clone() for k, v in module.state_dict().items()}
        fast = fast_of(module)
        fast.token_logprobs(batch_of(rows))
        query = module.get_submodule("base_model.model.model.layers.0.self_attn.q_proj.base_layer")
        fused = fast._network.layers[0].qkv.matrix
        assert query.weight.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
        torch.testing.assert_close(alone(module, rows), before)
        fast.release()
        assert all(p.is_contiguous() for p in module.parameters())
        assert all(torch.equal(module.state_dict()[name], value) for name, value in state.items())


def test_weights_that_are_replaced_are_fused_again() -> None:
    module, other = module_of("llama"), module_of("llama")
    rows = documents([9, 20])
    fast = fast_of(module)
    with torch.no_grad():
        fast.token_logprobs(batch_of(rows))
        for parameter in other.parameters():
            parameter.mul_(1.1)
        module.load_state_dict(other.state_dict(), assign=True)
        torch.testing.assert_close(fast.token_logprobs(batch_of(rows)), alone(other, rows), rtol=1e-5, atol=1e-5)


def test_tokens_nobody_learns_from_are_left_out() -> None:
    batch = batch_of([Document((5, 6, 7, 8), (1,)), Document((9, 10), ()), Document((11, 12, 13), (1,))])
    (lane,) = lanes.lanes_of(batch, threads=1, shared_prefix=False)
    assert batch.ids_T[lane.source_T].tolist()[: tokens_of(lane)] == [5, 6, 11, 12]


def test_few_shapes_are_computed() -> None:
    """Each new shape costs a compilation and memory that is never given back."""
    for length in range(10, 200, 7):
        for lane in lanes.lanes_of(batch_of(documents([length, 20, 8], prefix=0)), threads=2, shared_prefix=False):
            assert len(lane.source_T) % 32 == 0
            assert len(lane.source_T) - tokens_of(lane) < 32


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lora_dropout": 0.1}, "dropout"),
        ({"use_dora": True}, "more than two factors"),
        ({"lora_bias": True}, "more than two factors"),
        ({"target_modules": ["q_proj", "lm_head"]}, "output embedding"),
        ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, "not adapters"),
    ],
)
def test_what_is_not_covered_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    model = SimpleNamespace(spec=None, module=module_of("llama", **changes), tokenizer=None)
    assert reason in str(FastLlama.build(cast(LanguageModel, model)))


def test_other_families_are_refused() -> None:
    config = AutoConfig.for_model("gpt2", vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2)
    model = SimpleNamespace(spec=None, module=AutoModelForCausalLM.from_config(config), tokenizer=None)
    assert "not one of" in str(FastLlama.build(cast(LanguageModel, model)))
