"""Losses of bc, iql and cql against their formulas, and what they learn from stored episodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from galley.methods.control import offline, registry
from galley.methods.control.base import Agent, WorldFacts
from galley.models.control.decision import parameter_count
from galley.models.control.spec import NetworkSpec
from methods.control import stored

pytestmark = pytest.mark.tiny

Array = np.ndarray[Any, Any]


def layers(module: torch.nn.Module) -> list[tuple[Array, Array]]:
    """Weights and biases of a perceptron in numpy, float64."""
    found = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    return [(part.weight.detach().double().numpy(), part.bias.detach().double().numpy()) for part in found]


def forward(module: torch.nn.Module, rows: Array) -> Array:
    """A ReLU perceptron by hand."""
    found = layers(module)
    for number, (weight, bias) in enumerate(found):
        rows = rows @ weight.T + bias
        rows = np.maximum(rows, 0) if number < len(found) - 1 else rows
    return rows


def critics(module: Any, rows: Array) -> Array:
    """K ReLU perceptrons by hand, [K, B, O]."""
    out = []
    for k in range(len(module.nets.weights[0])):
        hidden = rows
        for number, (weight, bias) in enumerate(zip(module.nets.weights, module.nets.biases, strict=True)):
            hidden = hidden @ weight[k].detach().double().numpy().T + bias[k].detach().double().numpy()
            hidden = np.maximum(hidden, 0) if number < module.nets.layers - 1 else hidden
        out.append(hidden)
    return np.stack(out)


def seen(agent: Agent, rows: torch.Tensor) -> Array:
    """Observations as the networks see them, by hand from the buffers."""
    shift, scale = (agent.decision.get_buffer(name).double().numpy() for name in ("shift", "scale"))
    scaled: Array = np.clip((rows.double().numpy() - shift) / scale, -10, 10)
    return scaled


def softmax_log(outputs: Array) -> Array:
    logs: Array = outputs - outputs.max(1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    return logs


def mean(agent: Agent, part: str, batch: Any) -> float:
    loss = agent.loss(part, batch)
    return loss.total.item() / loss.denominator


def test_bc_is_cross_entropy_for_choices_and_regression_for_numbers() -> None:
    agent = stored.agent("bc", stored.cartpole((0.25,), 5))
    batch = agent.sample()
    logs = softmax_log(forward(agent.decision, seen(agent, batch["observations"])))
    rows = np.arange(len(logs))
    assert mean(agent, "policy", batch) == pytest.approx(-logs[rows, batch["actions"].numpy()].mean(), rel=1e-5)

    agent = stored.agent("bc", stored.pendulum((0.0, 1.0), 5))
    batch = agent.sample()
    actions = batch["actions"].double().numpy()
    errors = actions - forward(agent.decision, seen(agent, batch["observations"]))
    assert mean(agent, "policy", batch) == pytest.approx((errors**2).mean(), rel=1e-5)

    agent = stored.agent("bc", stored.pendulum((0.0, 1.0), 5), action_loss="likelihood")
    agent.parameters("policy")[-1].data.fill_(0.3)
    wanted = 0.5 * (errors / math.exp(0.3)) ** 2 + 0.3 + 0.5 * math.log(2 * math.pi)
    assert mean(agent, "policy", batch) == pytest.approx(wanted.mean(), rel=1e-5)


@pytest.mark.real
def test_the_width_of_the_likelihood_is_learned() -> None:
    agent = stored.agent("bc", stored.pendulum((0.5,), 5), action_loss="likelihood", hidden=(32,))
    stored.trained(agent, 2000)
    width = math.exp(float(agent.parameters("policy")[-1].detach()))
    assert 0.2 < width < 0.9, "noise of 0.5 in the torque, partly cut off by the bounds"


def test_iql_losses_are_those_of_the_paper() -> None:
    episodes = stored.pendulum((0.0, 1.0), 5)
    agent: Any = stored.trained(
        stored.agent("iql", episodes, expectile=0.8, advantage_scale=2.0, weight_limit=1.02), 100
    )
    batch = agent.sample()
    here, after = seen(agent, batch["observations"]), seen(agent, batch["successors"])
    unit = batch["actions"].double().numpy() / 2
    rewards, discounts = batch["rewards"].double().numpy(), batch["discounts"].double().numpy()
    values = critics(agent._critics, np.concatenate([here, unit], 1))[:, :, 0]
    judged = critics(agent._targets, np.concatenate([here, unit], 1))[:, :, 0].min(0)
    now, following = forward(agent._value, here)[:, 0], forward(agent._value, after)[:, 0]

    critic = ((values - (rewards + discounts * following)) ** 2).sum(0).mean()
    assert mean(agent, "critic", batch) == pytest.approx(critic, rel=1e-5)
    ahead = judged - now
    value = (np.where(ahead < 0, 0.2, 0.8) * ahead**2).mean()
    assert mean(agent, "value", batch) == pytest.approx(value, rel=1e-5)
    weights = np.minimum(np.exp(2 * ahead), 1.02)
    assert 0 < (weights == 1.02).mean() < 1, "the limit is tested, and so is what lies below"
    log_std = agent._log_std.detach().double().numpy()
    errors = (unit - np.tanh(forward(agent.decision, here))) / np.exp(log_std)
    logs = (-0.5 * errors**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(1)
    assert mean(agent, "actor", batch) == pytest.approx(-(weights * logs).mean(), rel=1e-5)


def test_iql_for_choices_weighs_the_cross_entropy() -> None:
    agent: Any = stored.trained(stored.agent("iql", stored.cartpole((0.25,), 5)), 100)
    batch = agent.sample()
    here, rows = seen(agent, batch["observations"]), np.arange(256)
    judged = critics(agent._targets, here)[:, rows, batch["actions"].numpy()].min(0)
    weights = np.minimum(np.exp(3 * (judged - forward(agent._value, here)[:, 0])), 100)
    logs = softmax_log(forward(agent.decision, here))[rows, batch["actions"].numpy()]
    assert mean(agent, "actor", batch) == pytest.approx(-(weights * logs).mean(), rel=1e-5)


def test_iql_scales_rewards_by_the_range_of_returns() -> None:
    episodes = stored.cartpole((0.0, 0.5), 5, 5)
    spread = episodes.returns.max() - episodes.returns.min()
    batch = stored.agent("iql", episodes).sample()
    assert batch["rewards"].tolist() == pytest.approx([1000 / spread] * 256)
    batch = stored.agent("iql", episodes, scale_rewards=False).sample()
    assert set(batch["rewards"].tolist()) == {1}


def test_cql_is_double_dqn_with_a_gap() -> None:
    agent: Any = stored.trained(stored.agent("cql", stored.cartpole((0.25,), 5), conservative_weight=0.7), 100)
    batch = agent.sample()
    here, after, rows = seen(agent, batch["observations"]), seen(agent, batch["successors"]), np.arange(256)
    values = forward(agent.decision, here)
    taken = values[rows, batch["actions"].numpy()]
    best = forward(agent.decision, after).argmax(1)
    following = forward(agent._target, after)[rows, best]
    errors = np.abs(taken - batch["rewards"].numpy() - batch["discounts"].double().numpy() * following)
    huber = np.where(errors < 1, 0.5 * errors**2, errors - 0.5)
    gap = np.log(np.exp(values).sum(1)) - taken
    assert mean(agent, "critic", batch) == pytest.approx((huber + 0.7 * gap).mean(), rel=1e-5)


def test_truncated_steps_keep_their_discount() -> None:
    episodes = stored.pendulum((1.0,), 5)
    rows = offline.rows_of(episodes, gamma=0.9, reward_scale=1.0, device="cpu")
    assert (rows["discounts"] == 0.9).all(), "Pendulum never terminates"
    episodes = stored.cartpole((0.5,), 5)
    rows = offline.rows_of(episodes, gamma=0.9, reward_scale=1.0, device="cpu")
    assert (rows["discounts"] == 0).sum() == 5


@pytest.mark.parametrize("name", ["bc", "iql", "cql"])
def test_networks_are_as_large_as_the_plan_says(name: str) -> None:
    for episodes in (stored.cartpole((0.25,), 5), *([] if name == "cql" else [stored.pendulum((0.0, 1.0), 5)])):
        agent: Any = stored.agent(name, episodes, hidden=(32, 16))
        facts = WorldFacts(episodes.observations_layout, episodes.actions_layout, NetworkSpec((32, 16)), 0)
        said = registry.get(name)(registry.get(name).Config()).memory_bytes(facts)
        trained = sum(p.numel() for part in agent.parts for p in agent.parameters(part))
        width = episodes.actions_layout.size if episodes.actions_layout.kind == "box" and name == "iql" else 0
        assert said["optimizer"] == 12 * (trained - width)
        targets = sum(parameter_count(getattr(agent, key)) for key in ("_critics",) if hasattr(agent, key))
        targets += parameter_count(agent.decision) if name == "cql" else 0
        assert said["networks"] == 4 * (trained - width + targets)


@pytest.mark.real
def test_bc_of_a_good_policy_is_good() -> None:
    good = stored.cartpole((0.1,), 20)
    agent = stored.trained(stored.agent("bc", good), 600)
    assert stored.mean_return(agent, "gym:CartPole-v1") > 450


@pytest.mark.real
def test_iql_is_better_than_what_is_stored() -> None:
    mixed = stored.cartpole((0.1, 0.45), 10, 100)
    assert 50 < mixed.returns.mean() < 100
    fast: Any = {"batch_size": 128, "learning_rate": 2e-3, "hidden": (32, 32), "polyak": 0.05, "gamma": 0.9}
    agent = stored.trained(stored.agent("iql", mixed, **fast, steps=900), 700)
    assert stored.mean_return(agent, "gym:CartPole-v1") > 250


def test_cql_does_not_believe_in_actions_that_nobody_took() -> None:
    good = stored.cartpole((0.0,), 10)
    most = 1 / (1 - 0.9)
    preferred, believed, returns = {}, {}, {}
    for weight in (0.0, 1.0):
        fast: Any = {"batch_size": 128, "learning_rate": 1e-3, "polyak": 0.02, "gamma": 0.9}
        agent = stored.trained(stored.agent("cql", good, **fast, conservative_weight=weight), 900)
        with torch.no_grad():
            values = agent.decision.outputs(agent.decision.normalised(torch.as_tensor(good.observations))).numpy()
        rows = np.arange(len(values))
        preferred[weight] = (values[rows, 1 - good.actions] > values[rows, good.actions]).mean()
        believed[weight] = values.max(axis=1).mean()
        returns[weight] = stored.mean_return(agent, "gym:CartPole-v1")
    assert preferred[0.0] > 0.3, "plain DQN prefers what was never tried"
    assert believed[0.0] > most, "and believes in more than there can be"
    assert returns[0.0] < 150
    assert preferred[1.0] < 0.1
    assert believed[1.0] < most
    assert returns[1.0] > 400
