"""recurrent-ppo: its loss is sb3-contrib's, sequences are what was played, and it learns what plain PPO cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from galley.methods.control import registry
from galley.methods.control.base import Agent, World, WorldFacts
from galley.methods.control.playing import DecisionPlayer, play
from galley.models.control.decision import parameter_count
from galley.models.control.spec import NetworkSpec
from methods.control import worlds

pytestmark = pytest.mark.tiny

BLIND = "methods.control.blind:blind"


def linear(target: Any, source: Any) -> None:
    target.weight.data.copy_(source.weight.data)
    target.bias.data.copy_(source.bias.data)


def twin(agent: Any, environment: Any) -> Any:
    """sb3-contrib's policy with the same weights."""
    from sb3_contrib import RecurrentPPO

    kwargs = {"lstm_hidden_size": 8, "net_arch": {"pi": [8], "vf": [8]}}
    policy = RecurrentPPO("MlpLstmPolicy", environment, n_steps=8, policy_kwargs=kwargs).policy
    networks = agent._core.networks
    policy.lstm_actor.load_state_dict(networks.decision.memory.state_dict())
    policy.lstm_critic.load_state_dict(networks.critic_memory.state_dict())
    linear(policy.mlp_extractor.policy_net[0], networks.decision.body[0])
    linear(policy.mlp_extractor.value_net[0], networks.critic[0])
    linear(policy.action_net, networks.decision.body[2])
    linear(policy.value_net, networks.critic[2])
    if networks.log_std is not None:
        policy.log_std.data.copy_(networks.log_std.data)
    return policy


@pytest.mark.parametrize("words", [BLIND, "gym:Pendulum-v1"])
def test_the_loss_is_that_of_sb3_contrib(words: str) -> None:
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    from galley.data.environments.registered import make_environment

    agent: Any = worlds.make(
        "recurrent-ppo",
        words=words,
        hidden=(8,),
        settings={"num_steps": 40, "batch_size": 60, "sequence_length": 15, "entropy_coefficient": 0.1},
    )
    for _ in range(3):
        agent.step(0)
    batch = agent.sample()
    assert not batch["valid"].all(), "some sequences are padded"
    ours = agent.loss("policy", batch)
    policy = twin(agent, make_environment(words))
    sequences, steps = batch["valid"].shape
    states = [(batch[f"{who}_hidden"][None], batch[f"{who}_cell"][None]) for who in ("policy", "critic")]
    flat = {
        name: batch[name].flatten(0, 1) for name in batch if batch[name].dim() > 1 and name[-2:] not in ("en", "ll")
    }
    values, log_prob, entropy = policy.evaluate_actions(
        flat["observations"], flat["actions"], RNNStates(*states), torch.zeros(sequences * steps)
    )
    mask = flat["valid"]
    advantages = flat["advantages"]
    advantages = (advantages - advantages[mask].mean()) / (advantages[mask].std() + 1e-8)
    ratio = torch.exp(log_prob - flat["log_probs"])
    policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))[mask].mean()
    value_loss = ((flat["returns"] - values.flatten()) ** 2)[mask].mean()
    theirs = policy_loss + 0.5 * value_loss - 0.1 * entropy[mask].mean()
    assert ours.denominator == mask.sum()
    assert ours.total.item() / ours.denominator == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize("vector", ["serial", "native"])
@pytest.mark.parametrize("length", [None, 5])
def test_sequences_give_what_was_played(vector: str, length: int | None) -> None:
    from galley.data.environments import EnvironmentSettings, open_environments

    kind = registry.get("recurrent-ppo")
    opened = open_environments(EnvironmentSettings("gym:CartPole-v1", 3, vector=vector))  # type: ignore[arg-type]
    config = kind.Config.model_validate({"num_envs": 3, "num_steps": 70, "lstm_units": 8, "sequence_length": length})
    facts = WorldFacts(opened.observations, opened.actions, NetworkSpec((8,)), 1000)
    agent: Any = kind(config).agent(World(facts, opened, None, 0, "cpu", lambda kind, message: None))
    core = agent._core
    for parameter in core.networks.parameters():
        parameter.data *= 3  # so that memories matter
    for _ in range(2):
        gathered = core.gather()
    batch = core.tensors(gathered.rows)
    assert batch["valid"].sum() == gathered.steps
    with torch.no_grad():
        log_probs, _, values, columns = core.judge(batch)
    assert torch.allclose(log_probs, columns["log_probs"], atol=1e-5)
    assert torch.allclose(values, columns["values"], atol=1e-4)
    assert batch["valid"].shape[1] == (length or 70)


def test_a_cut_episode_is_worth_what_its_memory_expects() -> None:
    agent: Any = worlds.make(
        "recurrent-ppo", words="methods.control.worlds:constant_10", settings={"num_steps": 40, "gamma": 0.9}
    )
    networks = agent._core.networks
    networks.critic[-1].weight.data.zero_()
    networks.critic[-1].bias.data.fill_(10.0)
    rows = agent._core.gather().rows
    assert np.abs(rows["advantages"]).max() < 1e-5, "reward 1 for ever is worth 10 now"

    networks.critic[-1].weight.data.normal_(0, 1, generator=torch.Generator().manual_seed(0))
    core = agent._core
    rollout = core._collector.collect(core._actor)
    _, finals = core._actor.following(rollout)
    seen = torch.zeros(11, 1, 3)
    with torch.no_grad():
        values = networks(seen, *networks.begin(1))[1]
    assert rollout.finals
    assert all(np.allclose(final, values[10].item(), atol=1e-6) for final in finals)


def test_playing_forgets_at_the_end_of_an_episode() -> None:
    agent: Any = worlds.make("recurrent-ppo", words=BLIND)
    for parameter in agent._core.networks.parameters():
        parameter.data *= 3
    decision = agent.decision
    observations = torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        state = decision.begin(2)
        for step in observations[:3]:
            _, state = decision.act(step, state)
        _, mixed = decision.act(observations[3], state, torch.tensor([True, False]))
        _, fresh = decision.act(observations[3], decision.begin(2))
        _, kept = decision.act(observations[3], state)
    assert torch.equal(mixed[0][:, 0], fresh[0][:, 0])
    assert torch.equal(mixed[0][:, 1], kept[0][:, 1])
    assert not torch.allclose(fresh[0], kept[0])


def test_the_plan_knows_its_size() -> None:
    agent: Any = worlds.make("recurrent-ppo", words=BLIND)
    opened = worlds.environments(BLIND, 1)
    kind = registry.get("recurrent-ppo")
    facts = WorldFacts(opened.observations, opened.actions, NetworkSpec((8, 8)), 1000)
    said = kind(kind.Config.model_validate({"lstm_units": 8})).memory_bytes(facts)
    assert said["networks"] == 4 * parameter_count(agent._core.networks)


def learned(name: str, steps: int, **settings: Any) -> float:
    """The best mean return of evaluations on the way."""
    kind = registry.get(name)
    method = kind(kind.Config.model_validate(settings))
    opened, evaluation = worlds.environments(BLIND, method.num_envs), worlds.environments(BLIND, 10)
    facts = WorldFacts(opened.observations, opened.actions, kind.network, steps)
    agent: Agent = method.agent(World(facts, opened, None, 0, "cpu", lambda kind, message: None))
    done, best, due = 0, 0.0, 0
    while done < steps and best < 400:
        done += agent.step(done).steps
        if done >= due:
            played = play(evaluation, DecisionPlayer(agent.decision), 10, seed=5)
            best, due = max(best, float(np.mean([episode.ret for episode in played]))), done + 2000
    return best


@pytest.mark.real
def test_it_balances_without_seeing_velocities() -> None:
    assert learned("recurrent-ppo", 30_000) > 400
    assert learned("ppo", 30_000) < 150
