"""Optimisers over flat parameters equal the usual ones."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from galley import checkpoint
from galley.methods.control.flat_adam import FlatAdam, FlatParameters, FlatRmsprop

pytestmark = pytest.mark.unit


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def loss_of(module: nn.Module, step: int) -> torch.Tensor:
    inputs = torch.randn(16, 5, generator=torch.Generator().manual_seed(step))
    outputs: torch.Tensor = module(inputs)
    return (outputs**2).mean() * 10


def vector(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5])
def test_adam_equals_torch(epsilon: float) -> None:
    ours, theirs = network(), network()
    flat = FlatParameters(ours.parameters())
    adam = FlatAdam(flat, epsilon=epsilon)
    other = torch.optim.Adam(theirs.parameters(), eps=epsilon)
    for step in range(50):
        rate = 1e-2 * (1 - step / 60)
        flat.gradient.zero_()
        torch.autograd.backward(loss_of(ours, step))
        adam.step(rate)
        other.param_groups[0]["lr"] = rate
        other.zero_grad()
        torch.autograd.backward(loss_of(theirs, step))
        other.step()
    assert (vector(ours) - vector(network())).abs().max() > 0.05
    assert torch.allclose(vector(ours), vector(theirs), rtol=0, atol=1e-7)


@pytest.mark.parametrize("tensorflow", [False, True])
def test_rmsprop_equals_torch_and_stable_baselines3(tensorflow: bool) -> None:
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    ours, theirs = network(), network()
    flat = FlatParameters(ours.parameters())
    rmsprop = FlatRmsprop(flat, tensorflow=tensorflow)
    kind = RMSpropTFLike if tensorflow else torch.optim.RMSprop
    other = kind(theirs.parameters(), lr=1e-2, alpha=0.99, eps=1e-5)
    for step in range(50):
        flat.gradient.zero_()
        torch.autograd.backward(loss_of(ours, step))
        rmsprop.step(1e-2)
        other.zero_grad()
        torch.autograd.backward(loss_of(theirs, step))
        other.step()
    assert (vector(ours) - vector(network())).abs().max() > 0.05
    assert torch.allclose(vector(ours), vector(theirs), rtol=0, atol=1e-6)


def test_clipping_equals_torch() -> None:
    module = network()
    flat = FlatParameters(module.parameters())
    torch.autograd.backward(loss_of(module, 0))
    other = copy.deepcopy(module)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None
        theirs.grad = mine.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    assert flat.clip(0.5) == pytest.approx(float(expected), rel=1e-6)
    gradients = torch.cat([p.grad.reshape(-1) for p in other.parameters() if p.grad is not None])
    assert torch.allclose(flat.gradient, gradients, rtol=1e-6)
    assert flat.clip(1e9) == pytest.approx(0.5, rel=1e-4), "what is short enough stays"


def test_parameters_are_views_and_shared_ones_count_once() -> None:
    module = network()
    flat = FlatParameters([*module.parameters(), next(module.parameters())])
    assert flat.data.numel() == sum(p.numel() for p in module.parameters())
    flat.data.zero_()
    assert all(not p.any() for p in module.parameters())


@pytest.mark.parametrize("optimiser", [FlatAdam, FlatRmsprop])
def test_state_continues_to_the_bit(optimiser: type[FlatAdam | FlatRmsprop], tmp_path: Path) -> None:
    def steps(module: nn.Module, flat: FlatParameters, made: FlatAdam | FlatRmsprop, numbers: range) -> None:
        for step in numbers:
            flat.gradient.zero_()
            torch.autograd.backward(loss_of(module, step))
            made.step(1e-2)

    module = network()
    flat = FlatParameters(module.parameters())
    made = optimiser(flat)
    steps(module, flat, made, range(5))
    checkpoint.save(tmp_path, made.state())
    other = copy.deepcopy(module)
    copied = FlatParameters(other.parameters())
    loaded = optimiser(copied)
    loaded.load_state(checkpoint.load(tmp_path))
    steps(module, flat, made, range(5, 9))
    steps(other, copied, loaded, range(5, 9))
    assert torch.equal(vector(module), vector(other))
