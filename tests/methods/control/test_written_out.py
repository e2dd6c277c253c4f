"""The update written out by hand equals autograd on the readable loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from galley.data.environments.layout import ActionLayout, Leaf, ObservationLayout
from galley.methods.base import Loss
from galley.methods.control.a2c import a2c_loss
from galley.methods.control.flat_adam import FlatParameters
from galley.methods.control.ppo import ppo_loss
from galley.methods.control.written_out import (
    WrittenOut,
    a2c_gradient,
    can_be_written_out,
    parameter_order,
    ppo_gradient,
)
from galley.models.control.actor_critic import ActorCritic
from galley.models.control.spec import Activation, NetworkSpec

pytestmark = pytest.mark.unit

ROWS, SIZE = 60, 5
OBSERVATIONS = ObservationLayout((Leaf("", "vector", (SIZE,), 0, SIZE),), "float32")
ACTIONS = {
    "discrete": ActionLayout("discrete", (3,), (0.0,), (2.0,), ()),
    "multi-discrete": ActionLayout("multi-discrete", (3, 2), (0.0, 0.0), (2.0, 1.0), (2,)),
    "binary": ActionLayout("binary", (2, 2, 2), (0.0,) * 3, (1.0,) * 3, (3,)),
    "box": ActionLayout("box", (1, 1), (-1.0, -1.0), (1.0, 1.0), (2,)),
}
NETWORKS = [((7,), "tanh"), ((6, 9), "tanh"), ((8, 4, 6), "relu")]


def networks(kind: str, hidden: tuple[int, ...], activation: Activation) -> ActorCritic:
    made = ActorCritic(
        OBSERVATIONS,
        ACTIONS[kind],
        NetworkSpec(hidden, activation),
        normalise=False,
        initial_log_std=-0.3,
        seed=0,
    )
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        parameter.data += 0.4 * torch.randn(parameter.shape, generator=generator)
    return made


def random_batch(kind: str, made: ActorCritic) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(2)
    actions = ACTIONS[kind]
    if kind == "box":
        chosen = random.standard_normal((ROWS, actions.size)).astype(np.float32)
    else:
        chosen = np.stack([random.integers(0, size, ROWS) for size in actions.sizes], axis=1)
    batch = {
        "observations": random.standard_normal((ROWS, SIZE)).astype(np.float32),
        "actions": chosen[:, 0] if kind == "discrete" else chosen,
        "advantages": random.standard_normal(ROWS).astype(np.float32),
        "returns": random.standard_normal(ROWS).astype(np.float32),
    }
    with torch.no_grad():
        log_probs, _, values = made.judge(torch.from_numpy(batch["observations"]), torch.from_numpy(batch["actions"]))
    noise = random.standard_normal((2, ROWS)).astype(np.float32)
    batch["log_probs"] = log_probs.numpy() + 0.3 * noise[0]
    batch["values"] = values.numpy() + 0.3 * noise[1]
    return batch


def compare(
    made: ActorCritic,
    batch: dict[str, np.ndarray[Any, Any]],
    by_hand: Callable[[WrittenOut], dict[str, float] | None],
    loss_of: Callable[..., Loss],
) -> dict[str, float]:
    flat = FlatParameters(parameter_order(made))
    metrics = by_hand(WrittenOut(made, flat, num_envs=4))
    assert metrics is not None
    gradient = flat.gradient.clone()
    flat.gradient.zero_()
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    loss = loss_of(*made.judge(tensors["observations"], tensors["actions"]), tensors)
    mean = loss.total / loss.denominator
    mean.backward()  # type: ignore[no-untyped-call]
    assert torch.count_nonzero(flat.gradient) > 0.5 * len(flat.gradient)
    error = (gradient - flat.gradient).abs().max() / flat.gradient.abs().max()
    assert error < 1e-5
    assert metrics["loss"] == pytest.approx(float(mean.detach()), rel=1e-5)
    for name, (total, count) in loss.metrics.items():
        assert metrics[name] == pytest.approx(total / count, rel=1e-4, abs=1e-6), name
    return metrics


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(("hidden", "activation"), NETWORKS)
@pytest.mark.parametrize("value_clip_range", [None, 0.2])
@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.1])
def test_ppo_gradient_equals_autograd(
    kind: str,
    hidden: tuple[int, ...],
    activation: Activation,
    value_clip_range: float | None,
    entropy_coefficient: float,
) -> None:
    made = networks(kind, hidden, activation)
    assert can_be_written_out(made)
    settings: dict[str, Any] = {
        "clip_range": 0.2,
        "value_clip_range": value_clip_range,
        "entropy_coefficient": entropy_coefficient,
        "value_coefficient": 0.7,
    }
    batch = random_batch(kind, made)
    metrics = compare(
        made,
        batch,
        lambda written: ppo_gradient(written, batch, highest_kl=None, **settings),
        lambda *judged: ppo_loss(*judged, **settings),
    )
    assert 0.1 < metrics["clip_fraction"] < 0.9


@pytest.mark.parametrize("kind", ACTIONS)
def test_a2c_gradient_equals_autograd(kind: str) -> None:
    made = networks(kind, (6, 9), "tanh")
    batch = random_batch(kind, made)
    settings: dict[str, Any] = {"entropy_coefficient": 0.1, "value_coefficient": 0.7}
    compare(
        made,
        batch,
        lambda written: a2c_gradient(written, batch, **settings),
        lambda *judged: a2c_loss(*judged, **settings),
    )


@pytest.mark.parametrize("kind", ACTIONS)
def test_acting_equals_the_network(kind: str) -> None:
    made = networks(kind, (6, 9), "tanh")
    written = WrittenOut(made, FlatParameters(parameter_order(made)), num_envs=4)
    seen = np.random.default_rng(3).standard_normal((4, SIZE)).astype(np.float32)
    expected = made.decision.outputs(torch.from_numpy(seen)).detach().numpy()
    assert np.allclose(written.outputs(seen), expected, atol=1e-6)
    assert np.allclose(written.values(seen), made(torch.from_numpy(seen))[1].detach().numpy(), atol=1e-6)


def test_batches_of_changing_size_do_not_disturb_each_other() -> None:
    made = networks("discrete", (6, 9), "tanh")
    written = WrittenOut(made, FlatParameters(parameter_order(made)), num_envs=4)
    batch = random_batch("discrete", made)
    whole = written.values(batch["observations"]).copy()
    parts = [written.values(batch["observations"][a:b]).copy() for a, b in ((0, 50), (50, 60))]
    assert np.allclose(np.concatenate(parts), whole, atol=1e-6)


def test_a_policy_that_moved_too_far_is_not_updated() -> None:
    made = networks("discrete", (6, 9), "tanh")
    flat = FlatParameters(parameter_order(made))
    batch = random_batch("discrete", made)
    settings: dict[str, Any] = {
        "clip_range": 0.2,
        "value_clip_range": None,
        "entropy_coefficient": 0.0,
        "value_coefficient": 0.5,
    }
    written = WrittenOut(made, flat, num_envs=4)
    assert ppo_gradient(written, batch, highest_kl=1e-3, **settings) is None
    assert not flat.gradient.any()
    assert ppo_gradient(written, batch, highest_kl=10.0, **settings) is not None


def test_other_networks_are_left_to_autograd() -> None:
    pixels = ObservationLayout((Leaf("", "image", (8, 8, 3), 0, 192),), "uint8")
    for observations, network in (
        (pixels, NetworkSpec((8,), "tanh")),
        (OBSERVATIONS, NetworkSpec((8,), "elu")),
        (OBSERVATIONS, NetworkSpec((), "tanh")),
    ):
        made = ActorCritic(observations, ACTIONS["discrete"], network, normalise=False, initial_log_std=0.0, seed=0)
        assert not can_be_written_out(made)
