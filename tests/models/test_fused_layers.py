"""Fused layers say and learn what the layers that they stand in for do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated

from galley.models import compiled
from galley.models.fused_gate import fuse_gates, silu_product
from galley.models.fused_lora import fuse_lora
from galley.models.fused_norm import fuse_norms
from galley.models.grouped_attention import grouped_attention
from models.families import tiny_model

pytestmark = pytest.mark.tiny


def adapted(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    config = LoraConfig(r=4, lora_alpha=6, target_modules="all-linear", **options)
    module: Any = get_peft_model(tiny_model("qwen2", dtype=dtype), config)
    torch.manual_seed(1)
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return module.train()


def loss(module: Any) -> Tensor:
    ids = torch.arange(3, 20)[None]
    out: Tensor = module(input_ids=ids, labels=ids, use_cache=False).loss
    return out


def gradients(module: Any) -> dict[str, Tensor]:
    torch.autograd.backward(loss(module))
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("bias", ["none", "all"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_fused_lora_learns_what_peft_learns(dtype: torch.dtype, limit: float, bias: str) -> None:
    module = adapted(dtype, bias=bias)
    plain = copy.deepcopy(module)
    assert fuse_lora(module) == 14
    assert loss(module).item() == pytest.approx(loss(plain).item(), rel=limit)
    mine, truth = gradients(module), gradients(plain)
    assert mine.keys() == truth.keys()
    for name, want in truth.items():
        assert mine[name].dtype == want.dtype
        assert (mine[name].float() - want.float()).norm() <= limit * want.float().norm() + 1e-6, name


@pytest.mark.parametrize("options", [{"lora_dropout": 0.1}, {"use_dora": True}, {"lora_bias": True}])
def test_what_is_not_plain_lora_keeps_pefts_forward(options: dict[str, Any]) -> None:
    assert fuse_lora(adapted(**options)) == 0


def test_gpt2s_transposed_layers_keep_pefts_forward() -> None:
    module: Any = get_peft_model(tiny_model("gpt2"), LoraConfig(target_modules="all-linear", fan_in_fan_out=True))
    assert fuse_lora(module) == 0


def test_disabling_merging_and_copying_still_work() -> None:
    module = adapted().eval()
    base, tuned = loss(copy.deepcopy(module.unload())).item(), loss(module := adapted().eval()).item()
    fuse_lora(module)
    with module.disable_adapter():
        assert loss(module).item() == pytest.approx(base, rel=1e-6)
    assert loss(module).item() == pytest.approx(tuned, rel=1e-5)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
    assert loss(twin).item() == pytest.approx(tuned, rel=1e-5), "the copy must not look at the original's weights"
    assert loss(module).item() == pytest.approx(base, rel=1e-5)
    twin.merge_adapter()
    assert loss(twin).item() == pytest.approx(tuned, rel=1e-4)


def test_saving_gives_the_files_of_peft(tmp_path: Path) -> None:
    module = adapted()
    plain = copy.deepcopy(module)
    fuse_lora(module)
    assert module.state_dict().keys() == plain.state_dict().keys()
    module.save_pretrained(tmp_path)
    reloaded = PeftModel.from_pretrained(tiny_model("qwen2"), tmp_path)
    assert loss(reloaded.eval()).item() == pytest.approx(loss(module.eval()).item(), rel=1e-5)


class _Reader(nn.Module):
    """Reads with queries, keys and values what it is told to, in the order that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, width, bias=False) for width in (12, 4, 4))

    def forward(self, x: Tensor, other: Tensor, order: str) -> Tensor:
        inputs = {"q": x, "k": x, "v": other}
        return torch.cat([getattr(self, f"{name}_proj")(inputs[name]) for name in order], -1)


@pytest.mark.parametrize("order", ["qkv", "vkq", "kk", "qqkv", "qv", "v", "qkvqkv"])
@pytest.mark.parametrize("same", [True, False])
def test_layers_that_usually_read_the_same_need_not(order: str, same: bool) -> None:
    torch.manual_seed(0)
    module: Any = get_peft_model(_Reader(), LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj"]))
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    plain = copy.deepcopy(module)
    assert fuse_lora(module) == 3
    x = torch.randn(5, 8)
    other = x if same else torch.randn(5, 8)
    results = []
    for each in (module, plain):
        leaf = x.clone().requires_grad_()
        out = each(leaf, leaf if same else other, order)
        torch.autograd.backward(out.square().sum())
        grads = [p.grad for p in each.parameters() if p.grad is not None]
        results.append([out.detach(), leaf.grad if leaf.grad is not None else torch.zeros(1), *grads])
    assert len(results[0]) >= len(results[1])
    torch.testing.assert_close(results[0][:2], results[1][:2], rtol=1e-4, atol=1e-4)
    for mine, (name, truth) in zip(module.parameters(), plain.named_parameters(), strict=True):
        if truth.grad is not None:
            torch.testing.assert_close(mine.grad, truth.grad, rtol=1e-4, atol=1e-3, msg=name)
        elif mine.grad is not None:
            assert not mine.grad.any(), f"{name}, computed for nobody, learns nothing"


@pytest.mark.parametrize("kind", [LlamaRMSNorm, GemmaRMSNorm])
@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)])
def test_fused_norms_equal_the_familys(
    kind: Callable[..., Any], trains: bool, dtype: torch.dtype, limit: float
) -> None:
    torch.manual_seed(0)
    norm = kind(24, eps=1e-3).to(dtype)
    nn.init.normal_(norm.weight)
    norm.weight.requires_grad_(trains)
    plain = copy.deepcopy(norm)
    assert fuse_norms(norm) == 1
    x = (torch.randn(2, 5, 24) * 3).to(dtype).requires_grad_()
    g = torch.randn(2, 5, 24).to(dtype)
    results = []
    for module in (norm, plain):
        leaves = [x, *(p for p in module.parameters() if p.requires_grad)]
        out = module(x)
        results.append([out, *torch.autograd.grad(out, leaves, g)])
    for got, want in zip(*results, strict=True):
        assert got.dtype == want.dtype
        assert (got.float() - want.float()).norm() <= limit * want.float().norm()


def test_norms_that_do_something_else_are_left_alone() -> None:
    class OddRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor) -> Tensor:
            out: Tensor = super().forward(hidden_states) + 0.1
            return out

    assert fuse_norms(nn.ModuleList([OddRMSNorm(8), MambaRMSNormGated(8, group_size=8), nn.LayerNorm(8)])) == 0


@pytest.mark.parametrize("loops", [True, False])
def test_compiled_norms_learn_what_torch_learns(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "usable", lambda: loops)
    torch.manual_seed(0)
    norm = LlamaRMSNorm(24).bfloat16()
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    exact = copy.deepcopy(norm).float()
    assert fuse_norms(norm) == 1
    wide = torch.randn(2, 5, 48).bfloat16()
    x = wide[..., :24].requires_grad_()  # rows of a wider tensor, as after a split
    g = torch.randn(1, 1, 24).bfloat16().expand(2, 5, 24)  # as from a sum over tokens
    got = torch.autograd.grad(norm(x), (x, norm.weight), g)
    leaf = x.detach().float().requires_grad_()
    want = torch.autograd.grad(exact(leaf), (leaf, exact.weight), g.float())
    for mine, truth in zip(got, want, strict=True):
        assert (mine.float() - truth).norm() <= 0.01 * truth.norm()


@pytest.mark.parametrize("name", ["llama", "qwen2", "mistral"])
@pytest.mark.parametrize("adapt", [True, False])
def test_fused_gates_learn_what_the_family_learns(name: str, adapt: bool) -> None:
    module: Any = tiny_model(name, dtype=torch.bfloat16).train()
    layers = module.config.num_hidden_layers
    if adapt:
        module = get_peft_model(module, LoraConfig(r=4, target_modules="all-linear"))
    plain = copy.deepcopy(module)
    assert fuse_gates(module) == layers
    assert fuse_gates(module) == layers, "a second time finds the same ones"
    assert loss(module).item() == pytest.approx(loss(plain).item(), rel=0.02)
    mine, truth = gradients(module), gradients(plain)
    assert mine.keys() == truth.keys()
    for key, want in truth.items():
        assert (mine[key].float() - want.float()).norm() <= 0.06 * want.float().norm() + 1e-6, key


def test_gates_that_do_something_else_are_left_alone() -> None:
    class OddMLP(LlamaMLP):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = 2 * super().forward(x)
            return out

    config = tiny_model("llama").config
    assert fuse_gates(nn.ModuleList([OddMLP(config), nn.Linear(4, 4)])) == 0
    assert fuse_gates(tiny_model("gemma")) == 0, "its gate is a GELU"


def test_gates_that_differ_only_in_a_function_are_told_apart() -> None:
    mlps: Any = nn.ModuleList([LlamaMLP(tiny_model("llama").config) for _ in range(3)])
    for mlp, function in zip(mlps, (functional.silu, functional.gelu, functional.silu), strict=True):
        del mlp.act_fn
        mlp.act_fn = function
    assert fuse_gates(mlps) == 2


@pytest.mark.parametrize("loops", [True, False])
def test_silu_product_and_its_gradients(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "usable", lambda: loops)
    torch.manual_seed(0)
    both = (torch.randn(3, 4, 32) * 3).bfloat16()
    leaves = [part.requires_grad_() for part in both.chunk(2, -1)]
    exact = [leaf.detach().float().requires_grad_() for leaf in leaves]
    out, truth = silu_product(leaves[0], leaves[1]), functional.silu(exact[0]) * exact[1]
    torch.testing.assert_close(out.float(), truth, rtol=2**-7, atol=1e-3)
    for mine, want in zip(torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(truth.sum(), exact), strict=True):
        torch.testing.assert_close(mine.float(), want, rtol=2**-6, atol=1e-2)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    heads=st.sampled_from([(4, 4), (4, 2), (6, 1)]),
    sizes=st.sampled_from([(8, 8), (8, 4)]),
)
@settings(max_examples=40, deadline=None)
def test_grouped_attention_is_attention_of_each_document(
    lengths: list[int], heads: tuple[int, int], sizes: tuple[int, int]
) -> None:
    torch.manual_seed(sum(lengths))
    tokens = sum(lengths)
    q = torch.randn(1, tokens, heads[0], sizes[0]).transpose(1, 2).requires_grad_()
    k = torch.randn(1, heads[1], tokens, sizes[0], requires_grad=True)
    v = torch.randn(1, heads[1], tokens, sizes[1], requires_grad=True)
    g = torch.randn(1, tokens, heads[0], sizes[1])
    repeat = heads[0] // heads[1]
    pieces = zip(
        torch.split(q, lengths, 2),
        torch.split(k.repeat_interleave(repeat, 1), lengths, 2),
        torch.split(v.repeat_interleave(repeat, 1), lengths, 2),
        strict=True,
    )
    outs = [functional.scaled_dot_product_attention(a, b, c, is_causal=True, scale=0.3) for a, b, c in pieces]
    truth = torch.cat(outs, 2).transpose(1, 2)
    mine = grouped_attention(q, k, v, tuple(lengths), 0.3)
    torch.testing.assert_close(mine, truth, rtol=1e-4, atol=1e-5)
    got, want = (torch.autograd.grad(x, (q, k, v), g) for x in (mine, truth))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
