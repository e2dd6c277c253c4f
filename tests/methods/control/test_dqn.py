"""Deep Q-learning against Stable-Baselines3, against autograd, and on a world whose values are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3 import DQN
from torch import Tensor

from galley import checkpoint
from galley.data.environments import Environments, Step
from galley.methods.control.dqn import METHOD, QAgent
from galley.methods.control.replay import ReplayMemory
from methods.control import worlds

pytestmark = pytest.mark.tiny
OPTIONS: list[dict[str, Any]] = [
    {"double": False},
    {"double": True},
    {"double": False, "quantiles": 7},
    {"double": True, "quantiles": 7},
    {"n_step": 3, "priority_exponent": 0.6},
    {"dueling": True},
    {"dueling": True, "quantiles": 7, "n_step": 2, "priority_exponent": 0.5, "target_share": 0.1},
]


def make(**settings: Any) -> QAgent:
    agent = worlds.make("dqn", settings={"target_update_interval": 30, **settings})
    assert isinstance(agent, QAgent)
    return agent


def learned(agent: QAgent, rounds: int = 25) -> QAgent:
    """After some rounds, with a target that lags behind."""
    done = 0
    for _ in range(rounds):
        done += agent.step(done).steps
    agent._target_flat.data += 0.05 * torch.randn(agent._target_flat.data.shape, generator=torch.Generator())
    return agent


def mean_loss(agent: QAgent, batch: dict[str, Tensor]) -> Tensor:
    loss = agent.loss("q", batch)
    return loss.total / loss.denominator


def minibatch(agent: QAgent) -> dict[str, Tensor]:
    """With errors on both sides of the bend of the Huber loss, and unequal weights."""
    batch = dict(agent.sample())
    generator = torch.Generator().manual_seed(0)
    batch["rewards"] = 3 * torch.randn(batch["rewards"].shape, generator=generator)
    return batch


def copied(agent: QAgent, network: Any, target: Any) -> None:
    """Our weights in their networks, layer by layer."""
    for ours, theirs in ((agent.decision, network), (agent._target, target)):
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.data.copy_(mine.data)


ARGUMENTS: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "device": "cpu", "buffer_size": 10}


def test_the_loss_equals_that_of_stable_baselines() -> None:
    agent = learned(make(double=False))
    theirs = DQN("MlpPolicy", "CartPole-v1", **ARGUMENTS)
    copied(agent, theirs.q_net, theirs.q_net_target)
    batch = minibatch(agent)
    with torch.no_grad():
        following = theirs.q_net_target(batch["successors"]).max(dim=1)[0].reshape(-1, 1)
    target = batch["rewards"][:, None] + batch["discounts"][:, None] * following
    values = theirs.q_net(batch["observations"]).gather(1, batch["actions"][:, None])
    expected = torch.nn.functional.smooth_l1_loss(values, target)
    assert mean_loss(agent, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_quantile_loss_equals_that_of_sb3_contrib() -> None:
    agent = learned(make(double=False, quantiles=7))
    arguments = {**ARGUMENTS, "policy_kwargs": {"net_arch": [8, 8], "n_quantiles": 7}}
    theirs = QRDQN("MlpPolicy", "CartPole-v1", **arguments)
    # Theirs are rows of [quantiles, choices], ours of [choices, quantiles].
    order = torch.arange(14).reshape(2, 7).t().flatten()
    for ours, other in ((agent.decision, theirs.quantile_net), (agent._target, theirs.quantile_net_target)):
        parameters = list(other.parameters())
        for mine, their in zip(ours.parameters(), parameters, strict=True):
            their.data.copy_(mine.data[order] if len(mine) == 14 else mine.data)
    batch = minibatch(agent)
    with torch.no_grad():
        following = theirs.quantile_net_target(batch["successors"])
        best = following.mean(dim=1, keepdim=True).argmax(dim=2, keepdim=True).expand(-1, 7, 1)
        following = following.gather(dim=2, index=best).squeeze(dim=2)
        target = batch["rewards"][:, None] + batch["discounts"][:, None] * following
    current = theirs.quantile_net(batch["observations"])
    chosen = batch["actions"][:, None, None].expand(-1, 7, 1)
    current = torch.gather(current, dim=2, index=chosen).squeeze(dim=2)
    expected = quantile_huber_loss(current, target, sum_over_quantiles=True)
    assert mean_loss(agent, batch).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("options", [o for o in OPTIONS if not o.get("dueling")])
def test_the_written_out_gradient_equals_autograd(options: dict[str, Any], activation: str) -> None:
    agent = learned(make(**options))
    written = agent._written
    assert written is not None
    written._relu = activation == "relu"
    if activation == "tanh":
        for network in (agent.decision, agent._target):
            for place in (1, 3):
                network.body[place] = torch.nn.Tanh()
    batch = minibatch(agent)
    expected = torch.autograd.grad(mean_loss(agent, batch), agent.parameters("q"))
    agent._flat.gradient.fill_(9.0)
    targets = written.targets(batch, written.target_outputs(batch["successors"][None])[0])
    written.gradient(batch, targets)
    got = agent._flat.gradient
    flat = torch.cat([gradient.flatten() for gradient in expected])
    assert torch.allclose(got, flat, rtol=1e-5, atol=1e-6 * float(flat.abs().max()))
    observations = batch["observations"].numpy()
    assert np.allclose(written.outputs(observations), agent.decision.outputs(batch["observations"]).detach(), atol=1e-6)


@pytest.mark.parametrize("options", [o for o in OPTIONS if not o.get("dueling")])
def test_written_out_updates_go_where_autograd_goes(options: dict[str, Any]) -> None:
    fast, slow = make(**options), make(**options)
    slow._written = None
    done = 0
    for _ in range(20):
        one, other = fast.step(done), slow.step(done)
        done += one.steps
        assert one.episodes == other.episodes
        for name, value in one.metrics.items():
            assert value == pytest.approx(other.metrics[name], rel=1e-3, abs=1e-5), name
        if one.updates:
            assert one.loss == pytest.approx(other.loss, rel=1e-3)
            assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)
    assert torch.allclose(fast._flat.data, slow._flat.data, atol=1e-4)


def test_steps_are_counted_as_stable_baselines_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 400
    theirs = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_starts=50,
        train_freq=16,
        gradient_steps=3,
        target_update_interval=40,
        exploration_fraction=0.5,
        exploration_final_eps=0.1,
        **{**ARGUMENTS, "buffer_size": 1000},
    )
    epsilons: list[float] = []
    their_updates: list[int] = []

    def note(local: dict[str, Any], _: dict[str, Any]) -> bool:
        epsilons.append(local["self"].exploration_rate)
        their_updates.append(local["self"]._n_updates)
        return True

    theirs.learn(steps, callback=note)
    monkeypatch.setattr(worlds, "STEPS", steps)
    agent = make(
        num_envs=1,
        learning_starts=50,
        train_frequency=16,
        gradient_steps=3,
        target_update_interval=40,
        exploration_fraction=0.5,
        final_exploration=0.1,
    )
    done = updates = 0
    targets_before = agent._target_flat.data.clone()
    moved = []
    for _ in range(steps // 16):
        outcome = agent.step(done)
        done += outcome.steps
        if done < steps:  # what SB3's callback sees after a step is what that step was taken with
            assert outcome.metrics["epsilon"] == pytest.approx(epsilons[done])
        assert updates == their_updates[done - 1]
        updates += outcome.updates
        if not torch.equal(agent._target_flat.data, targets_before):
            moved.append(done)
        targets_before = agent._target_flat.data.clone()
    # A move after 40, 80, ... steps is seen where the round ends and the network had changed since the one before.
    ends = [16 * -(-at // 16) for at in range(40, steps + 1, 40)]
    assert moved == [end for end in ends if end > 64]


def test_a_share_of_the_target_moves_as_often_as_intervals_end() -> None:
    agent = make(target_share=0.25, target_update_interval=4, num_envs=1, learning_starts=1000)
    agent._flat.data.fill_(1.0)
    agent._target_flat.data.fill_(0.0)
    agent._move_target(11)
    assert float(agent._target_flat.data[0]) == pytest.approx(1 - 0.75**2)
    agent._move_target(1)
    assert float(agent._target_flat.data[0]) == pytest.approx(1 - 0.75**3)


@pytest.mark.parametrize(
    ("options", "copies"),
    [({}, 1), ({}, 4), ({"n_step": 3}, 4), ({"quantiles": 5}, 1), ({"double": False, "dueling": True}, 4)],
)
def test_a_limit_of_time_is_not_an_end(options: dict[str, Any], copies: int) -> None:
    """Reward 1 for ever, cut off after ten steps: Q = 1 / (1 - gamma) = 5, and its error vanishes."""
    agent = worlds.make(
        "dqn",
        words="methods.control.worlds:constant_10",
        settings={
            "num_envs": copies,
            "gamma": 0.8,
            "learning_rate": 0.01,
            "target_update_interval": 10,
            "train_frequency": 4,
            "gradient_steps": 4,
            **options,
        },
    )
    done = 0
    metrics: dict[str, float] = {}
    for _ in range(150):
        outcome = agent.step(done)
        done += outcome.steps
        metrics = dict(outcome.metrics)
    assert metrics["q_mean"] == pytest.approx(5.0, abs=0.1)
    assert metrics["td_error"] < 0.1


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option_resumes_to_the_bit(options: dict[str, Any], tmp_path: Path) -> None:
    agent = learned(make(**options))
    checkpoint.save(tmp_path, agent.state())
    other = make(**options)
    other.load_state(checkpoint.load(tmp_path))
    done = agent._steps
    for _ in range(12):
        done += agent.step(done).steps
        other.step(done)
    assert torch.equal(agent._flat.data, other._flat.data)
    assert torch.equal(agent._target_flat.data, other._target_flat.data)


class Pictures(gymnasium.Env[Any, Any]):
    """The bright half says which action is rewarded; one step an episode."""

    observation_space = gymnasium.spaces.Dict(
        {
            "picture": gymnasium.spaces.Box(0, 255, (4, 6, 1), np.uint8),
            "mode": gymnasium.spaces.Discrete(2),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def _see(self) -> Any:
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((4, 6, 1), np.uint8)
        picture[:, 3 * self.side : 3 * self.side + 3] = 255
        return {"picture": picture, "mode": int(self.np_random.integers(2))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self.side)
        return self._see(), reward, True, False, {}


def pictures() -> gymnasium.Env[Any, Any]:
    return Pictures()


@pytest.mark.real
def test_pictures_and_categories_are_learned_from() -> None:
    agent = worlds.make(
        "dqn",
        words="methods.control.test_dqn:pictures",
        settings={"num_envs": 4, "learning_rate": 0.003, "exploration_fraction": 0.2},
    )
    done, returns = 0, []
    while done < 800:
        outcome = agent.step(done)
        done += outcome.steps
        returns += [episode.ret for episode in outcome.episodes]
    assert np.mean(returns[:100]) < 0.75
    assert np.mean(returns[-100:]) > 0.9


class Idle:
    """Copies that are idle every second step, as native ones are after an end."""

    def __init__(self, inside: Environments) -> None:
        self.inside, self.num_envs = inside, inside.num_envs
        self.observations, self.actions = inside.observations, inside.actions
        self.turn = 0

    def reset(self, seed: int) -> Any:
        return self.inside.reset(seed)

    def step(self, actions: Any) -> Step:
        self.turn += 1
        step = self.inside.step(actions)
        return step._replace(idle=np.ones(self.num_envs, np.bool_)) if self.turn % 2 else step


def test_idle_rows_are_neither_counted_nor_learned_from() -> None:
    agent = make(num_envs=2, train_frequency=6)
    agent._environments = Idle(agent._environments)  # type: ignore[assignment]
    outcome = agent.step(0)
    assert outcome.steps == 6
    assert len(agent._memory) == 6


def test_prioritised_replay_gets_the_errors() -> None:
    agent = learned(make(priority_exponent=1.0))
    memory = agent._memory
    assert isinstance(memory, ReplayMemory)
    assert memory._tree is not None
    priorities = memory._tree.priorities(np.arange(len(memory)))
    assert len(set(priorities.tolist())) > 20, "rows that were learned from have priorities of their own"


def test_dueling_and_quantile_networks_are_counted() -> None:
    for options in ({}, {"dueling": True}, {"quantiles": 9}, {"dueling": True, "quantiles": 9}):
        agent = make(**options)
        bytes_ = METHOD(agent._config).memory_bytes(agent._facts)
        assert bytes_["networks"] == 8 * sum(p.numel() for p in agent.decision.parameters())
        assert bytes_["optimizer"] == 12 * sum(p.numel() for p in agent.decision.parameters())
