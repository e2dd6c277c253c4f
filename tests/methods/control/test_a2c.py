"""A2C: its loss is Stable-Baselines3's, and it learns."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from galley.data.environments import EnvironmentSettings, open_environments
from galley.methods.control.a2c import A2c, A2cAgent, A2cConfig
from galley.methods.control.base import World, WorldFacts
from methods.control.test_ppo import copy_weights

pytestmark = pytest.mark.tiny


def agent(words: str, steps: int, seed: int = 0, **settings: Any) -> A2cAgent:
    method = A2c(A2cConfig.model_validate(settings))
    environments = open_environments(EnvironmentSettings(words, method.num_envs))
    facts = WorldFacts(environments.observations, environments.actions, method.network, steps)
    return method.agent(World(facts, environments, None, seed, "cpu", lambda kind, message: None))


@pytest.mark.parametrize(("words", "optimizer"), [("CartPole-v1", "rmsprop"), ("Pendulum-v1", "rmsprop-tf")])
def test_an_update_equals_stable_baselines3(words: str, optimizer: str) -> None:
    from stable_baselines3 import A2C
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    settings: dict[str, Any] = {"entropy_coefficient": 0.02, "anneal_learning_rate": False, "learning_rate": 7e-4}
    made = agent(f"gym:{words}", 10_000, optimizer=optimizer, **settings)
    model = A2C("MlpPolicy", gymnasium.make(words), device="cpu", ent_coef=0.02)
    if optimizer == "rmsprop-tf":
        model.policy.optimizer = RMSpropTFLike(model.policy.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
    copy_weights(made, model.policy)
    made.step(0)
    batch = made.sample()
    values, log_prob, entropy = model.policy.evaluate_actions(batch["observations"], batch["actions"])
    policy_loss = -(batch["advantages"] * log_prob).mean()
    value_loss = torch.nn.functional.mse_loss(batch["returns"], values.flatten())
    loss = policy_loss - 0.02 * torch.mean(entropy) + 0.5 * value_loss
    model.policy.optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.policy.parameters(), 0.5)
    model.policy.optimizer.step()
    ours = torch.cat([part.detach().reshape(-1) for part in made.decision.body.parameters()])
    layers = [*model.policy.mlp_extractor.policy_net, model.policy.action_net]
    theirs = torch.cat([p.detach().reshape(-1) for layer in layers for p in layer.parameters()])
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.real
def test_it_learns_cartpole() -> None:
    made = agent("gym:CartPole-v1", 40_000)
    done, returns = 0, []
    while done < 40_000:
        outcome = made.step(done)
        done += outcome.steps
        returns += [episode.ret for episode in outcome.episodes]
    assert np.mean(returns[:20]) < 60
    assert np.mean(returns[-20:]) > 300


def test_adam_is_another_way() -> None:
    outcomes = [agent("gym:CartPole-v1", 1000, optimizer=kind).step(0) for kind in ("rmsprop", "adam")]
    assert all(outcome.updates == 1 for outcome in outcomes)
    made = [agent("gym:CartPole-v1", 1000, optimizer=kind) for kind in ("rmsprop", "adam")]
    before = made[0]._core.flat.data.clone()
    for one in made:
        one.step(0)
    assert not torch.equal(made[0]._core.flat.data, made[1]._core.flat.data)
    assert (made[1]._core.flat.data - before).abs().max() == pytest.approx(1e-3, rel=0.05), "Adam's first step"
