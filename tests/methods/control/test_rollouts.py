"""Collection and advantages: ends of episodes, idle rows, normalisation, minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from galley.data.environments import Environments, EnvironmentSettings, open_environments
from galley.methods.control.rollouts import Collector, Rollout, advantages, minibatches, standardised
from methods.control import worlds

pytestmark = pytest.mark.unit

Array = np.ndarray[Any, Any]


class Always:
    """The same action, for ever."""

    def __init__(self, action: int) -> None:
        self.action = action
        self.starts: list[Array] = []

    def begin(self, steps: int, num_envs: int) -> None:
        self.starts = []

    def act(self, seen_ND: Array, starts_N: Array, masks_NO: Array | None) -> tuple[Array, Array]:
        self.starts.append(starts_N.copy())
        chosen = np.full(len(seen_ND), self.action)
        return chosen, chosen


def collector(environments: Environments, num_steps: int, **settings: Any) -> Collector:
    plain = {"gamma": 0.9, "normalise_observations": False, "normalise_rewards": False, "seed": 0}
    return Collector(environments, num_steps, **{**plain, **settings})


def cartpole(vector: str, num_envs: int = 3) -> Environments:
    return open_environments(EnvironmentSettings("gym:CartPole-v1", num_envs, vector=vector))  # type: ignore[arg-type]


def slow_advantages(rollout: Rollout, values: Array, gamma: float, gae_lambda: float) -> Array:
    """The sum of the definition, row by row, for rollouts whose episodes all terminate."""
    steps, number = rollout.rewards.shape
    found = np.zeros((steps, number))
    for n in range(number):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                following = 0.0 if rollout.terminated[k, n] else values[k + 1, n]
                found[t, n] += weight * (rollout.rewards[k, n] + gamma * following - values[k, n])
                weight *= gamma * gae_lambda
                if rollout.terminated[k, n]:
                    break
    return found


@pytest.mark.parametrize("vector", ["serial", "native"])
def test_advantages_equal_the_definition(vector: str) -> None:
    made = collector(cartpole(vector), 40)
    rollout = made.collect(Always(1))
    values = np.random.default_rng(0).standard_normal((41, 3)).astype(np.float32)
    finals = [np.zeros(len(final.rows), np.float32) for final in rollout.finals]
    found = advantages(rollout, values, finals, gamma=0.9, gae_lambda=0.7)
    expected = slow_advantages(rollout, values, 0.9, 0.7)
    assert rollout.terminated.sum() >= 6
    assert np.allclose(found[rollout.valid], expected[rollout.valid], atol=1e-5)


def test_advantages_equal_stable_baselines3() -> None:
    import gymnasium
    import torch
    from stable_baselines3.common.buffers import RolloutBuffer

    random = np.random.default_rng(1)
    rollout = collector(cartpole("serial"), 40).collect(Always(0))
    values = random.standard_normal((41, 3)).astype(np.float32)
    buffer = RolloutBuffer(
        40, gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(2), gamma=0.95, gae_lambda=0.8, n_envs=3
    )
    for t in range(40):
        buffer.add(
            np.zeros((3, 4)),
            np.zeros((3, 1)),
            rollout.rewards[t],
            rollout.starts[t],
            torch.from_numpy(values[t]),
            torch.zeros(3),
        )
    buffer.compute_returns_and_advantage(torch.from_numpy(values[40]), rollout.terminated[39])
    assert rollout.starts[1:].any()
    found = advantages(rollout, values, [], gamma=0.95, gae_lambda=0.8)
    assert np.allclose(found, buffer.advantages, atol=1e-5)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
def test_a_time_limit_does_not_end_the_world(gae_lambda: float) -> None:
    gamma = 0.9
    made = collector(worlds.environments("methods.control.worlds:constant_10", 2), 25, gamma=gamma)
    rollout = made.collect(Always(0))
    assert rollout.truncated.sum() == 4
    forever = np.float32(1 / (1 - gamma))
    finals = [np.full(len(final.rows), forever) for final in rollout.finals]
    assert len(finals) == 2
    found = advantages(rollout, np.full((26, 2), forever), finals, gamma=gamma, gae_lambda=gae_lambda)
    assert np.allclose(found, 0, atol=1e-5)


def test_values_of_another_episode_do_not_flow_back() -> None:
    made = collector(worlds.environments("methods.control.worlds:constant_10", 1), 25)
    rollout = made.collect(Always(0))
    values = np.zeros((26, 1), np.float32)
    zero = [np.zeros(1, np.float32)] * len(rollout.finals)
    before = advantages(rollout, values, zero, gamma=0.9, gae_lambda=1.0)
    values[10:20] = 1000.0
    after = advantages(rollout, values, zero, gamma=0.9, gae_lambda=1.0)
    assert np.array_equal(before[:10], after[:10])
    assert not np.array_equal(before[10:], after[10:])


def test_idle_rows_are_no_experience() -> None:
    made = collector(cartpole("native", 4), 60)
    rollout = made.collect(Always(1))
    idle = ~rollout.valid
    assert idle.sum() >= 8
    rows = rollout.rows({"rewards": rollout.rewards, "observations": rollout.observations[:-1]})
    assert len(rows["rewards"]) == rollout.valid.sum() == len(rows["observations"])
    assert (rows["rewards"] == 1).all(), "an idle step has no reward, so none of them is left"
    ended = rollout.terminated | rollout.truncated
    assert (idle[1:] == ended[:-1]).all()
    assert sum(episode.length for episode in rollout.episodes) == sum(
        np.flatnonzero(ended[:, n])[-1] + 1 - idle[: np.flatnonzero(ended[:, n])[-1], n].sum() for n in range(4)
    )


def test_episodes_begin_where_the_actor_is_told() -> None:
    actor = Always(1)
    made = collector(worlds.environments("methods.control.worlds:constant_10", 2), 25)
    made.collect(actor)
    starts = np.array(actor.starts)
    assert np.flatnonzero(starts[:, 0]).tolist() == [0, 10, 20]
    made.collect(actor)
    assert np.flatnonzero(np.array(actor.starts)[:, 0]).tolist() == [5, 15]


def test_observations_are_normalised_by_all_that_was_seen_before() -> None:
    made = collector(cartpole("serial"), 50, normalise_observations=True)
    made.collect(Always(1))
    assert made.normaliser is not None
    mean, variance = made.normaliser.moments.mean.copy(), made.normaliser.moments.variance.copy()
    raw = made._now.copy()
    rollout = made.collect(Always(1))
    expected = np.clip((raw - mean) / np.sqrt(variance + 1e-8), -10, 10)
    assert np.allclose(rollout.observations[0], expected, atol=1e-5)
    assert not np.array_equal(made.normaliser.moments.mean, mean), "the second rollout was taken in"


def test_rewards_are_scaled_and_episodes_are_not() -> None:
    made = collector(cartpole("serial"), 50, normalise_rewards=True)
    rollout = made.collect(Always(1))
    assert rollout.rewards.std() > 0
    assert all(episode.ret == episode.length for episode in rollout.episodes)


def test_allowed_choices_are_stored() -> None:
    made = collector(worlds.environments("methods.control.worlds:masked", 2), 30, masked=True)
    rollout = made.collect(Always(0))
    assert rollout.masks is not None
    assert rollout.masks.shape == (30, 2, 2)
    assert rollout.masks[..., 1].all()


def test_minibatches_take_each_row_once_in_pieces_of_nearly_one_size() -> None:
    rows = {"x": np.arange(250), "y": np.arange(250) * 2}
    pieces = list(minibatches(rows, 60, np.random.default_rng(0)))
    assert sorted(len(piece["x"]) for piece in pieces) == [62, 62, 63, 63]
    together = np.concatenate([piece["x"] for piece in pieces])
    assert sorted(together.tolist()) == list(range(250))
    assert together.tolist() != list(range(250))
    assert all((piece["y"] == 2 * piece["x"]).all() for piece in pieces)


def test_standardised_equals_torch() -> None:
    import torch

    values = np.random.default_rng(0).standard_normal(100).astype(np.float32) * 5 + 3
    tensor = torch.from_numpy(values)
    assert np.allclose(standardised(values), (tensor - tensor.mean()) / (tensor.std() + 1e-8), atol=1e-5)
    assert standardised(values[:1]) == values[:1]
