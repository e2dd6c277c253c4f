"""maskable-ppo: forbidden choices are never made, count nowhere, and the loss is sb3-contrib's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from galley.base import GalleyError
from galley.methods.control.playing import DecisionPlayer, play
from galley.models.control.distributions import log_prob_and_entropy
from methods.control import worlds

pytestmark = pytest.mark.tiny


class Strict(gymnasium.Env[Any, Any]):
    """Three choices of four and two; which are allowed changes with each step, and a forbidden one is an error."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([4, 2, 3])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._now(), {}

    def _now(self) -> Any:
        masks = self.np_random.random(9) < 0.4
        for start, end in ((0, 4), (4, 6), (6, 9)):
            masks[self.np_random.integers(start, end)] = True
        self.masks = masks
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def action_masks(self) -> np.ndarray[Any, Any]:
        return self.masks

    def step(self, action: Any) -> Any:
        chosen = np.asarray(action) + np.array([0, 4, 6])
        if not self.masks[chosen].all():
            raise RuntimeError("forbidden")
        self.count += 1
        return self._now(), float(action[0] == 0), self.count == 20, False, {}


def strict() -> gymnasium.Env[Any, Any]:
    return Strict()


STRICT = "methods.control.test_maskable_ppo:strict"


def test_forbidden_choices_are_never_made() -> None:
    agent = worlds.make("maskable-ppo", words=STRICT, settings={"num_envs": 4, "num_steps": 64})
    done = 0
    for _ in range(6):
        outcome = agent.step(done)
        done += outcome.steps
    assert done == 6 * 256
    opened = worlds.environments(STRICT, 5)
    played = play(opened, DecisionPlayer(agent.decision), 20, seed=1)
    assert [episode.length for episode in played] == [20] * 20


def test_plain_ppo_makes_them() -> None:
    with pytest.raises(GalleyError, match="forbidden"):
        worlds.make("ppo", words=STRICT).step(0)


def test_their_probability_is_exactly_zero() -> None:
    agent: Any = worlds.make("maskable-ppo", words=STRICT)
    layout = agent.decision.spec.actions
    outputs = torch.randn(50, 9, generator=torch.Generator().manual_seed(0)) * 5
    masks = torch.rand(50, 9, generator=torch.Generator().manual_seed(1)) < 0.5
    masks[:, [0, 4, 6]] = True
    chances = []
    for first in range(4):
        chosen = torch.tensor([[first, 0, 0]]).expand(50, -1)
        logs, entropies = log_prob_and_entropy(layout, outputs, chosen, None, masks)
        chances.append(logs.exp())
    chances_4 = torch.stack(chances, 1)
    assert (chances_4[~masks[:, :4]] == 0).all()
    assert (chances_4[masks[:, :4]] > 0).all()
    one = torch.zeros(50, 9, dtype=torch.bool)
    one[:, [2, 5, 7]] = True
    logs, entropies = log_prob_and_entropy(layout, outputs, torch.tensor([[2, 1, 1]]).expand(50, -1), None, one)
    assert (logs == 0).all()
    assert (entropies == 0).all()
    best = agent.decision.best(outputs, one)
    assert (best == torch.tensor([2, 1, 1])).all()


def test_the_loss_is_that_of_sb3_contrib() -> None:
    from sb3_contrib import MaskablePPO

    agent: Any = worlds.make("maskable-ppo", words=STRICT, settings={"entropy_coefficient": 0.1, "batch_size": 30})
    for _ in range(2):
        agent.step(0)
    batch = agent.sample()
    assert not batch["masks"].all()
    policy = MaskablePPO(
        "MlpPolicy", strict(), n_steps=8, policy_kwargs={"net_arch": {"pi": [8, 8], "vf": [8, 8]}}
    ).policy
    networks = agent._core.networks
    pairs = [
        (policy.mlp_extractor.policy_net[0], networks.decision.body[0]),
        (policy.mlp_extractor.policy_net[2], networks.decision.body[2]),
        (policy.action_net, networks.decision.body[4]),
        (policy.mlp_extractor.value_net[0], networks.critic[0]),
        (policy.mlp_extractor.value_net[2], networks.critic[2]),
        (policy.value_net, networks.critic[4]),
    ]
    for theirs, ours in pairs:
        theirs.load_state_dict(ours.state_dict())
    values, log_prob, entropy = policy.evaluate_actions(
        batch["observations"], batch["actions"], action_masks=batch["masks"].numpy()
    )
    ratio = torch.exp(log_prob - batch["log_probs"])
    advantages = (batch["advantages"] - batch["advantages"].mean()) / (batch["advantages"].std() + 1e-8)
    policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2)).mean()
    value_loss = ((batch["returns"] - values.flatten()) ** 2).mean()
    wanted = policy_loss + 0.5 * value_loss - 0.1 * entropy.mean()
    loss = agent.loss("policy", batch)
    assert loss.total.item() / loss.denominator == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_policy_in_use_takes_masks(sampled: bool) -> None:
    from galley.models.control.policy import Policy

    policy = Policy(worlds.make("maskable-ppo", words=STRICT).decision)
    observations = np.random.default_rng(0).uniform(-1, 1, (300, 2)).astype(np.float32)
    masks = np.zeros((300, 9), bool)
    masks[:, [1, 3, 5, 6, 8]] = True
    actions = policy.act(observations, sampled=sampled, masks=masks)
    assert set(actions[:, 0]) <= {1, 3}
    assert set(actions[:, 1]) == {1}
    assert set(actions[:, 2]) <= {0, 2}
    assert (len(set(actions[:, 0])) == 2) or not sampled
    one = policy.act(observations[0], masks=masks[0])
    assert one[0] in (1, 3)
    with pytest.raises(GalleyError, match=r"masks have the shape \[4\]"):
        policy.act(observations, masks=np.ones(4, bool))


def test_environments_without_masks_are_refused() -> None:
    with pytest.raises(GalleyError, match="does not say which choices are allowed") as caught:
        worlds.make("maskable-ppo", words="gym:CartPole-v1").step(0)
    assert caught.value.code == "environment-unsupported"


@pytest.mark.real
def test_it_learns_what_is_allowed_and_good() -> None:
    """Choice 0 pays; where it is forbidden, nothing does."""
    settings = {"num_envs": 8, "num_steps": 32, "num_epochs": 5, "batch_size": 32, "learning_rate": 3e-3}
    agent = worlds.make("maskable-ppo", words=STRICT, settings=settings, hidden=(32,))
    done = 0
    while done < 2000:
        done += agent.step(done).steps
    opened = worlds.environments(STRICT, 5)
    played = play(opened, DecisionPlayer(agent.decision), 50, seed=1)
    allowed = 0.4 + 0.6 / 4
    assert np.mean([episode.ret for episode in played]) == pytest.approx(20 * allowed, abs=1)
