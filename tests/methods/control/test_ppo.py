"""PPO: its loss is Stable-Baselines3's, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from galley import checkpoint
from galley.data.environments import EnvironmentSettings, open_environments
from galley.methods.control.a2c import A2cAgent
from galley.methods.control.base import World, WorldFacts
from galley.methods.control.playing import DecisionPlayer, play
from galley.methods.control.ppo import Ppo, PpoAgent, PpoConfig
from methods.control import worlds

pytestmark = pytest.mark.tiny


class Dictionary(gymnasium.Env[Any, Any]):
    """A small image, a category and numbers; the right choice is the category, and the switch should be on."""

    observation_space = gymnasium.spaces.Dict(
        {
            "picture": gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8),
            "kind": gymnasium.spaces.Discrete(3),
            "numbers": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left = 8
        return self._look(), {}

    def step(self, action: Any) -> Any:
        reward = float(action[0] == self.kind) + float(action[1] == 1)
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _look(self) -> Any:
        self.kind = int(self.np_random.integers(3))
        return {
            "picture": self.np_random.integers(0, 255, (8, 8, 1), np.uint8),
            "kind": self.kind,
            "numbers": self.np_random.random(2, np.float32),
        }


def dictionary() -> gymnasium.Env[Any, Any]:
    return Dictionary()


def agent(words: str, steps: int, seed: int = 0, **settings: Any) -> PpoAgent:
    method = Ppo(PpoConfig.model_validate(settings))
    environments = open_environments(EnvironmentSettings(words, method.num_envs))
    facts = WorldFacts(environments.observations, environments.actions, method.network, steps)
    return method.agent(World(facts, environments, None, seed, "cpu", lambda kind, message: None))


def learn(made: PpoAgent, steps: int) -> float:
    done, returns = 0, []
    while done < steps:
        outcome = made.step(done)
        done += outcome.steps
        returns += [episode.ret for episode in outcome.episodes]
    return float(np.mean(returns[-20:]))


def sb3_loss(model: Any, batch: dict[str, torch.Tensor], config: PpoConfig, clip_range: float) -> float:
    """What PPO.train of Stable-Baselines3 2.9.2 minimises."""
    values, log_prob, entropy = model.policy.evaluate_actions(batch["observations"], batch["actions"])
    ratio = torch.exp(log_prob - batch["log_probs"])
    one = batch["advantages"] * ratio
    two = batch["advantages"] * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    predicted = values.flatten()
    if config.value_clip_range is not None:
        moved = torch.clamp(predicted - batch["values"], -config.value_clip_range, config.value_clip_range)
        predicted = batch["values"] + moved
    value_loss = torch.nn.functional.mse_loss(batch["returns"], predicted)
    policy_loss = -torch.min(one, two).mean()
    return float(policy_loss - config.entropy_coefficient * entropy.mean() + config.value_coefficient * value_loss)


def copy_weights(ours: PpoAgent | A2cAgent, policy: Any) -> None:
    extractor = policy.mlp_extractor
    networks = ours._core.networks
    pairs = [
        (networks.decision.body, [extractor.policy_net[0], extractor.policy_net[2], policy.action_net]),
        (networks.critic, [extractor.value_net[0], extractor.value_net[2], policy.value_net]),
    ]
    for body, layers in pairs:
        for mine, theirs in zip([part for part in body if hasattr(part, "weight")], layers, strict=True):
            theirs.load_state_dict(mine.state_dict())
    if networks.log_std is not None:
        policy.log_std.data.copy_(networks.log_std.data)


@pytest.mark.parametrize(("words", "value_clip_range"), [("CartPole-v1", None), ("Pendulum-v1", 0.2)])
def test_the_loss_equals_stable_baselines3(words: str, value_clip_range: float | None) -> None:
    from stable_baselines3 import PPO

    settings: dict[str, Any] = {
        "value_clip_range": value_clip_range,
        "entropy_coefficient": 0.02,
        "num_steps": 32,
        "num_envs": 2,
    }
    made = agent(f"gym:{words}", 10_000, **settings)
    for done in range(0, 320, 64):
        made.step(done)
    batch = dict(made.sample())
    model = PPO("MlpPolicy", gymnasium.make(words), device="cpu")
    generator = torch.Generator().manual_seed(0)
    made._core.flat.data += 0.1 * torch.randn(made._core.flat.data.shape, generator=generator)
    copy_weights(made, model.policy)
    with torch.no_grad():
        loss = made.loss("policy", batch)
    assert loss.metrics["clip_fraction"][0] > 0.1 * loss.denominator
    with torch.no_grad():
        expected = sb3_loss(model, batch, made.config, made.config.clip_range)
    assert float(loss.total) / loss.denominator == pytest.approx(expected, rel=1e-5)


def test_advantages_of_a_minibatch_have_mean_0_and_deviation_1() -> None:
    made = agent("gym:CartPole-v1", 1000, num_steps=32)
    made.step(0)
    advantages = made.sample()["advantages"]
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-5)
    assert float(advantages.std()) == pytest.approx(1, rel=1e-4)


def test_schedules_follow_the_steps() -> None:
    made = agent("gym:CartPole-v1", 1000, learning_rate=1e-3, anneal="both")
    assert made.step(0).learning_rate == pytest.approx(1e-3)
    assert made.step(250).learning_rate == pytest.approx(0.75e-3)
    assert made._clip_range == pytest.approx(0.2 * 0.75)
    constant = agent("gym:CartPole-v1", 1000, learning_rate=1e-3, anneal="none")
    assert constant.step(250).learning_rate == pytest.approx(1e-3)


def test_a_low_target_ends_the_updates_of_a_round_early() -> None:
    settings: dict[str, Any] = {"num_epochs": 20, "learning_rate": 1e-2, "num_steps": 32}
    calm, wild = agent("gym:CartPole-v1", 9000, target_kl=0.003, **settings), agent("gym:CartPole-v1", 9000, **settings)
    assert calm.step(0).updates < wild.step(0).updates == 40


@pytest.mark.real
def test_it_learns_cartpole() -> None:
    made = agent("gym:CartPole-v1", 20_000)
    learn(made, 20_000)
    played = play(
        open_environments(EnvironmentSettings("gym:CartPole-v1", 10)), DecisionPlayer(made.decision), 10, seed=5
    )
    assert np.mean([episode.ret for episode in played]) > 400


@pytest.mark.real
def test_dicts_images_and_several_choices_are_learned_through_autograd(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "learning_rate": 1e-3, "num_epochs": 4}
    words = "methods.control.test_ppo:dictionary"
    made = agent(words, 10_000, **settings)
    assert made._core.written is None
    first = learn(agent(words, 10_000, **settings), 64)
    assert learn(made, 1500) > first + 2, "8 of 16 by chance"
    checkpoint.save(tmp_path, made.state())
    other = agent(words, 10_000, seed=3, **settings)
    other.load_state(checkpoint.load(tmp_path))
    for one in (made, other):
        one.step(2000)
    assert torch.equal(made._core.flat.data, other._core.flat.data)


def test_normalisation_is_part_of_the_decision_and_of_the_checkpoint(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"normalise_observations": True, "normalise_rewards": True, "num_steps": 32}
    made = agent("gym:Pendulum-v1", 5000, **settings)
    for done in (0, 256, 512):
        made.step(done)
    assert made.decision.get_buffer("scale")[2] > 1.5, "Pendulum turns with up to 8 rad/s"
    checkpoint.save(tmp_path, made.state())
    other = agent("gym:Pendulum-v1", 5000, seed=1, **settings)
    other.load_state(checkpoint.load(tmp_path))
    raw = torch.randn(50, 3)
    assert torch.equal(made.decision(raw), other.decision(raw))
    made.step(768), other.step(768)
    assert torch.equal(made.decision(raw), other.decision(raw))


def test_idle_rows_are_not_counted() -> None:
    made = agent("gym:CartPole-v1", 5000, num_envs=4, num_steps=64)
    outcome = made.step(0)
    assert 200 < outcome.steps < 4 * 64


def test_memory_grows_with_the_rollout_and_the_observation() -> None:
    pixels = worlds.environments("methods.control.test_ppo:dictionary", 1)
    facts = WorldFacts(pixels.observations, pixels.actions, Ppo.network, 1000)
    small, large = (Ppo(PpoConfig.model_validate({"num_steps": number})).memory_bytes(facts) for number in (16, 160))
    assert large["rollout"] == 10 * small["rollout"]
    made = agent("methods.control.test_ppo:dictionary", 1000)
    assert small["networks"] == 4 * made._core.flat.data.numel()
    assert small["optimizer"] == 12 * made._core.flat.data.numel()


def test_noise_is_kept_over_steps_and_rollouts_and_through_a_checkpoint(tmp_path: Path) -> None:
    """With zero outputs an action is its noise: it changes every third step, wherever a rollout begins."""
    from galley.models.control.distributions import Sampler

    made = worlds.make("ppo", words="gym:Pendulum-v1", settings={"noise_steps": 3, "num_steps": 4})
    sampler: Sampler = made._core._actor.sampler  # type: ignore[attr-defined]
    seen: list[float] = []
    for number in range(5):
        seen += [float(row[0, 0]) for row in sampler.noise(4, 2)]
        if number == 2:
            checkpoint.save(tmp_path, made.state())
            made = worlds.make("ppo", words="gym:Pendulum-v1", settings={"noise_steps": 3, "num_steps": 4}, seed=4)
            made.load_state(checkpoint.load(tmp_path))
            sampler = made._core._actor.sampler  # type: ignore[attr-defined]
    whole = [seen[i : i + 3] for i in range(0, 18, 3)]
    assert all(len(set(piece)) == 1 for piece in whole)
    assert len({piece[0] for piece in whole}) == 6
