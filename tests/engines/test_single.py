"""The single engine: split invariance, masters, guards, and exact continuation; over every optimiser."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from engines.toys import Rows, Toy, network, pieces, plan, rows
from galley.base import GalleyError
from galley.engines import OutOfMemoryError, registry
from galley.engines.single import Single
from galley.methods.base import Loss

pytestmark = pytest.mark.unit

OPTIMIZERS = ["adamw", "adafactor", "sgd", "muon", "adamw-8bit"]


def engine_for(toy: Toy, **optimizer: Any) -> Single:
    engine = Single()
    engine.setup(plan(**optimizer), toy)
    return engine


def weights(toy: Toy) -> list[torch.Tensor]:
    return [p.detach().clone() for p in toy.module.parameters()]


def test_registry_finds_engines_and_only_engines() -> None:
    assert "single" in registry.names()
    assert not {"base", "schedule", "optimizer"} & set(registry.names())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("sizes", [[8], [4, 4], [1] * 8, [3, 3, 2]])
def test_update_does_not_depend_on_the_split(name: str, sizes: list[int]) -> None:
    whole, split = Toy(network()), Toy(network())
    batch = rows(8)
    one = engine_for(whole, name=name, clip=1.0).step(whole.loss, [batch], 0.01)
    many = engine_for(split, name=name, clip=1.0).step(split.loss, pieces(batch, sizes), 0.01)
    assert many.loss == pytest.approx(one.loss, rel=1e-6)
    assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
    assert many.metrics["error"] == pytest.approx(one.metrics["error"], rel=1e-6)
    for a, b in zip(weights(whole), weights(split), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_lowers_the_loss(name: str) -> None:
    toy = Toy(network())
    engine = engine_for(toy, name=name)
    losses = [engine.step(toy.loss, [rows(32)], 0.01).loss for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_adamw_step_equals_torch_on_the_mean_loss() -> None:
    toy, reference = Toy(network()), network()
    batch = rows(8)
    engine_for(toy, weight_decay=0.1, clip=0.5).step(toy.loss, pieces(batch, [5, 3]), 0.01)
    decayed = [p for p in reference.parameters() if p.ndim > 1]
    plain = [p for p in reference.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    (((reference(batch.x_BI) - batch.y_BO) ** 2).sum() / 8).backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
    optimizer.step()
    for ours, theirs in zip(toy.module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_small_updates_survive_half_precision() -> None:
    """Without a float32 master an update below half a bf16 step would be lost every time."""
    toy = Toy(network(dtype=torch.bfloat16))
    engine = engine_for(toy, name="sgd", betas=(0.0, 0.0))
    before = weights(toy)
    batch = rows(8, dtype=torch.bfloat16)
    for _ in range(200):
        engine.step(toy.loss, [batch], 1e-5)
    assert any(not torch.equal(a, b) for a, b in zip(before, weights(toy), strict=True))
    assert all(p.dtype == torch.bfloat16 and p.grad is None for p in toy.module.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_continues_bit_identically(name: str, dtype: torch.dtype) -> None:
    def batch(step: int) -> Rows:
        return rows(8, seed=step, dtype=dtype)

    toy = Toy(network(dropout=0.3, dtype=dtype))
    engine = engine_for(toy, name=name)
    torch.manual_seed(5)
    for step in range(3):
        engine.step(toy.loss, [batch(step)], 0.01)
    saved = copy.deepcopy(engine.state())
    for step in range(3, 6):
        engine.step(toy.loss, [batch(step)], 0.01)
    again = Toy(network(dropout=0.3, dtype=dtype))
    resumed = engine_for(again, name=name)
    resumed.load_state(saved)
    for step in range(3, 6):
        resumed.step(again.loss, [batch(step)], 0.01)
    for a, b in zip(weights(toy), weights(again), strict=True):
        assert torch.equal(a, b)


def test_state_of_another_model_is_refused() -> None:
    toy = Toy(network())
    state = engine_for(toy).state()
    other = Toy(torch.nn.Linear(5, 3))
    with pytest.raises(GalleyError) as caught:
        engine_for(other).load_state(state)
    assert caught.value.code == "checkpoint-mismatch"


def test_non_finite_gradients_change_nothing() -> None:
    toy = Toy(network())
    engine = engine_for(toy)
    before = weights(toy)
    batch = rows(4)
    batch.y_BO[0, 0] = float("nan")
    result = engine.step(toy.loss, [batch], 0.01)
    assert not result.applied
    assert all(torch.equal(a, b) for a, b in zip(before, weights(toy), strict=True))
    assert engine.step(toy.loss, [rows(4)], 0.01).applied


def test_exhausted_memory_leaves_everything_as_it_was() -> None:
    toy = Toy(network(dropout=0.3))
    engine = engine_for(toy)
    before, random = weights(toy), torch.get_rng_state()
    calls = 0

    def loss(batch: Rows) -> Loss:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return toy.loss(batch)

    with pytest.raises(OutOfMemoryError):
        engine.step(loss, pieces(rows(8), [4, 4]), 0.01)
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is None for p in toy.module.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, weights(toy), strict=True))


def test_other_errors_pass_through() -> None:
    toy = Toy(network())
    engine = engine_for(toy)
    bad = Rows(torch.zeros(2, 4), torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="shapes"):
        engine.step(toy.loss, [bad], 0.01)


def test_tensors_that_no_loss_reaches_are_named() -> None:
    module = torch.nn.ModuleDict({"used": torch.nn.Linear(5, 3), "idle": torch.nn.Linear(5, 3)})
    toy = Toy(module)

    def loss(batch: Rows) -> Loss:
        return Loss(module["used"](batch.x_BI).sum(), batch.num_rows)

    assert engine_for(toy).step(loss, [rows(2)], 0.01).untrained == ("idle.weight", "idle.bias")


def test_a_step_without_anything_to_learn_changes_nothing() -> None:
    toy = Toy(network())
    before = weights(toy)

    def nothing(batch: Rows) -> Loss:
        return Loss(toy.module(batch.x_BI).sum() * 0.0, 0)

    result = engine_for(toy, weight_decay=0.5).step(nothing, [rows(2)], 0.01)
    assert result.loss == 0.0
    assert not result.applied
    assert all(torch.equal(a, b) for a, b in zip(before, weights(toy), strict=True))


@pytest.mark.parametrize("size", [1, 3, 16])
def test_evaluation_does_not_depend_on_the_batch_size(size: int) -> None:
    toy = Toy(network(dropout=0.5))
    engine = engine_for(toy)
    batch = rows(16)
    sizes = [size] * (16 // size) + ([16 % size] if 16 % size else [])
    whole = engine.evaluate(toy.loss, [batch])
    assert engine.evaluate(toy.loss, pieces(batch, sizes)).loss == pytest.approx(whole.loss, rel=1e-6)


def test_muon_leaves_embeddings_to_adamw() -> None:
    module = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 4))
    engine = engine_for(Toy(module), name="muon")
    muon, adamw = engine.optimizer.optimizers
    assert [p.shape for g in muon.param_groups for p in g["params"]] == [(4, 4)]
    assert sorted(tuple(p.shape) for g in adamw.param_groups for p in g["params"]) == [(4,), (7, 4)]
