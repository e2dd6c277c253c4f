"""SAC, TD3, DDPG, TQC and CrossQ: losses equal Stable-Baselines3's, updates equal autograd, truncation, exploration."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from torch import nn

from galley.base import GalleyError
from galley.methods.control import registry
from galley.methods.control.base import World, WorldFacts
from galley.methods.control.exploration import ActionScale, Exploration
from galley.methods.control.off_policy import OffPolicyAgent
from galley.methods.control.playing import DecisionPlayer, play
from galley.models.control.spec import Activation, NetworkSpec
from methods.control import worlds

pytestmark = pytest.mark.tiny

SOFT = ("sac", "tqc", "crossq")
NAMES = ("sac", "td3", "ddpg", "tqc", "crossq")
ORACLES: dict[str, Any] = {
    "sac": stable_baselines3.SAC,
    "td3": stable_baselines3.TD3,
    "ddpg": stable_baselines3.DDPG,
    "tqc": sb3_contrib.TQC,
    "crossq": sb3_contrib.CrossQ,
}
HIDDEN = (8, 8)


def learned(name: str, **settings: Any) -> Any:
    """An agent that has made some updates, so that critics, targets and actor differ."""
    agent = worlds.make(name, settings=settings)
    assert isinstance(agent, OffPolicyAgent)
    done = 0
    for _ in range(16):
        done += agent.step(done).steps
    return agent


def linears(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def copy_layers(theirs: list[nn.Linear], weights: list[torch.Tensor], biases: list[torch.Tensor]) -> None:
    for layer, weight, bias in zip(theirs, weights, biases, strict=True):
        layer.weight.data.copy_(weight)
        layer.bias.data.copy_(bias.reshape(-1))


def copy_critics(theirs: list[nn.Module], ours: Any) -> None:
    for number, net in enumerate(theirs):
        copy_layers(linears(net), [w[number] for w in ours.weights], [b[number] for b in ours.biases])


def oracle(name: str, agent: Any) -> Any:
    """Stable-Baselines3's model with the agent's weights."""
    kwargs: dict[str, Any] = {"net_arch": list(HIDDEN)}
    if name == "tqc":
        kwargs |= {"n_quantiles": 5, "n_critics": 2}
    arguments: dict[str, Any] = {"policy_kwargs": kwargs, "batch_size": 16}
    if name == "tqc":
        arguments["top_quantiles_to_drop_per_net"] = 2
    model = ORACLES[name]("MlpPolicy", "Pendulum-v1", **arguments)
    learner = agent._learner
    if name in SOFT:
        *hidden, head = learner._actor.layers
        if name != "crossq":
            copy_layers(linears(model.actor.latent_pi), [x.weight for x in hidden], [x.bias for x in hidden])
            for layer, start in ((model.actor.mu, 0), (model.actor.log_std, 1)):
                copy_layers([layer], [head.weight[start : start + 1]], [head.bias[start : start + 1]])
    else:
        for theirs, ours in ((model.actor, learner._actor), (model.actor_target, learner._target.module)):
            copy_layers(linears(theirs), [x.weight for x in ours.layers], [x.bias for x in ours.layers])
    if name in ("sac", "tqc"):
        critics, targets = learner._critic._critics, learner._critic._target.module
    elif name != "crossq":
        critics, targets = learner._critics, learner._target_critics.module
    if name != "crossq":
        for theirs, ours in ((model.critic, critics), (model.critic_target, targets)):
            copy_critics(theirs.q_networks if hasattr(theirs, "q_networks") else theirs.quantile_critics, ours.nets)
    return model


class Fed:
    """Stands in for a replay memory and a source of noise: `train` of the oracle sees our batch and records losses."""

    def __init__(self, batch: Mapping[str, torch.Tensor]) -> None:
        rows = len(batch["rewards"])
        self.data = SimpleNamespace(
            observations=batch["observations"],
            actions=batch["actions"],
            next_observations=batch["successors"],
            rewards=batch["rewards"][:, None],
            dones=torch.zeros(rows, 1),
            discounts=batch["discounts"][:, None],
        )

    def sample(self, batch_size: int, env: Any = None) -> Any:
        return self.data


def their_losses(name: str, model: Any, batch: Mapping[str, torch.Tensor], monkeypatch: Any) -> dict[str, float]:
    """What its train() logs for one update from the batch with the batch's noise."""
    noises = [batch["noise"], batch["next_noise"]] if name in SOFT else []
    if name == "crossq":
        noises.reverse()
    monkeypatch.setattr(
        torch.distributions.Normal,
        "rsample",
        lambda self, shape=(): self.loc + self.scale * noises.pop(0),  # the order in which train() draws
    )
    if name == "td3":
        monkeypatch.setattr(torch.Tensor, "normal_", lambda self, mean, std: self.copy_(batch["noise"] * std))
    logged: dict[str, float] = {}
    model.replay_buffer = Fed(batch)
    model._logger = SimpleNamespace(record=lambda key, value, **_: logged.__setitem__(key.split("/")[-1], value))
    model.lr_schedule = lambda _: 0.0
    model.train(1, batch_size=len(batch["rewards"]))
    return logged


@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "ddpg"])
def test_losses_equal_those_of_stable_baselines3(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = learned(name)
    batch = agent.sample()
    model = oracle(name, agent)
    ours = {part: agent.loss(part, batch) for part in agent.parts}
    means = {part: float(loss.total.detach()) / loss.denominator for part, loss in ours.items()}
    if name in SOFT:
        model.log_ent_coef.data.copy_(agent._learner._log[0].data)
    else:
        model.policy_delay = 1
    logged = their_losses(name, model, batch, monkeypatch)
    assert means["critic"] == pytest.approx(logged["critic_loss"], rel=1e-5)
    assert means["actor"] == pytest.approx(logged["actor_loss"], rel=1e-5)
    if name in SOFT:
        assert means["temperature"] == pytest.approx(logged["ent_coef_loss"], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("warmup", [0, 100_000])
def test_renormalised_critics_equal_those_of_sb3_contrib(warmup: int) -> None:
    agent = learned("crossq", renorm_warmup=warmup)
    ours = agent._learner._critic._critics
    model = sb3_contrib.CrossQ(
        "MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": list(HIDDEN), "renorm_warmup_steps": warmup}
    )
    theirs = model.critic
    copy_critics(theirs.q_networks, ours)
    for number, net in enumerate(theirs.q_networks):
        norms = [layer for layer in net if hasattr(layer, "ra_mean")]
        for mine, norm in zip(ours.norms, norms, strict=True):
            norm.scale.data.copy_(mine.scale[number, 0])
            norm.bias.data.copy_(mine.bias[number, 0])
            norm.ra_mean.copy_(mine.get_buffer("mean")[number])
            norm.ra_var.copy_(mine.get_buffer("variance")[number])
            norm.steps.copy_(mine.get_buffer("updates"))
    observations, actions = torch.randn(32, 3), torch.rand(32, 1) * 2 - 1
    theirs.set_bn_training_mode(False)
    expected = torch.cat(theirs(observations, actions), dim=1).T
    assert torch.allclose(ours(observations, actions), expected, rtol=1e-5, atol=1e-6)
    theirs.set_bn_training_mode(True)
    expected = torch.cat(theirs(observations, actions), dim=1).T
    got, statistics = ours.of_batch(observations, actions)
    assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5)
    for weight, gradient in zip(
        theirs.q_networks[1].parameters(),
        torch.autograd.grad(expected[1].sum(), theirs.q_networks[1].parameters()),
        strict=True,
    ):
        weight.grad = gradient
    mine = torch.autograd.grad(got.sum(), list(ours.weights))
    for weight, layer in zip(mine, linears(theirs.q_networks[1]), strict=True):
        assert layer.weight.grad is not None
        assert torch.allclose(weight[1], layer.weight.grad, rtol=1e-4, atol=1e-5)
    ours.absorb(statistics)
    after = [layer for layer in theirs.q_networks[0] if hasattr(layer, "ra_mean")]
    for norm, expected_norm in zip(ours.norms, after, strict=True):
        assert torch.allclose(norm.get_buffer("variance")[0], expected_norm.ra_var, rtol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
@pytest.mark.parametrize("name", NAMES)
def test_an_update_goes_down_the_gradient_of_the_loss(name: str, activation: Activation) -> None:
    """The written-out gradient equals the one that autograd finds of `loss`."""
    agent = learned(name)
    if activation != "relu":
        method = registry.get(name)
        small = {key: value for key, value in worlds.SMALL.items() if key in method.Config.model_fields}
        made = worlds.environments("gym:Pendulum-v1", 2)
        network = NetworkSpec(HIDDEN, activation)
        facts = WorldFacts(made.observations, made.actions, network, 1000)
        agent = method(method.Config.model_validate(small)).agent(
            World(facts, made, None, 0, "cpu", lambda kind, message: None)
        )
        for _ in range(16):
            agent.step(0)
    learner: Any = agent._learner
    batch = learner.sample(agent.memory)
    trained = (
        {"critic": learner._critic.trained, "actor": learner._trained}
        if name in SOFT
        else {
            "critic": learner._trained_critics,
            "actor": learner._trained,
        }
    )
    if name in SOFT:
        trained["temperature"] = learner._temperature
    expected = {}
    for part in trained:
        loss = agent.loss(part, batch)
        gradients = torch.autograd.grad(loss.total / loss.denominator, list(agent.parameters(part)))
        expected[part] = torch.cat([g.reshape(-1) for g in gradients])
    for optimiser in trained.values():
        optimiser.step = lambda: None  # weights stay, so that the losses stay
    with torch.no_grad():
        if name in SOFT:
            drawn, log_probs = learner._pass.draw(
                torch.cat([batch["observations"], batch["successors"]]),
                torch.cat([batch["noise"], batch["next_noise"]]),
            )
            plain = {key: value for key, value in batch.items() if not key.startswith(("whole", "place"))}
            if name == "crossq":
                learner._critic._critics.absorb = lambda statistics: None
            value = learner._critic.learn(plain, drawn[16:], log_probs[16:], learner.coefficient())
            assert float(value) == pytest.approx(float(agent.loss("critic", batch).total.detach()) / 16, rel=1e-5)
            actions, log_prob = drawn[:16], log_probs[:16]
            learner._temperature.flat.gradient.copy_(-log_prob.mean() - learner._target_entropy)
            _, slope = learner._critic.slope(batch["observations"], actions)
            critic_gradient = learner._critic.trained.flat.gradient
            learner._pass.learn(slope / -16, learner.coefficient() / 16)
        else:
            learner._update_critics(batch)
            critic_gradient = learner._trained_critics.flat.gradient
            learner._update_actor(batch)
    found = {part: optimiser.flat.gradient for part, optimiser in trained.items()} | {"critic": critic_gradient}
    for part, gradient in expected.items():
        assert torch.allclose(found[part], gradient, rtol=1e-5, atol=1e-6), part


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_reward_is_worth_its_discounted_sum_although_episodes_are_cut_off(name: str) -> None:
    """Reward 1 for ever, cut off every 10 steps, gamma 0.5: every action is worth 2, which a critic of 2 fits."""
    settings = {"gamma": 0.5, "learning_rate": 1e-2, "gradient_steps": 4, "batch_size": 32}
    if name in SOFT:
        settings |= {"entropy_coefficient": 0.0}
    if name != "crossq":
        settings |= {"tau": 0.1}
    agent: Any = worlds.make(name, words="methods.control.worlds:constant_10", kwargs={"box": True}, settings=settings)
    for _ in range(150):
        agent.step(0)
    learner = agent._learner
    critics = learner._critic._critics if name in SOFT else learner._critics
    values = critics(torch.zeros(5, 3), torch.linspace(-1, 1, 5)[:, None]).detach()
    assert float(values.mean()) == pytest.approx(2.0, abs=0.1)


def test_updates_keep_their_ratio_to_steps_whatever_the_copies() -> None:
    for copies in (1, 3):
        agent = worlds.make(
            "td3",
            settings={"num_envs": copies, "learning_starts": 0, "train_frequency": 4, "gradient_steps": 2},
        )
        rounds = [agent.step(0) for _ in range(30)]
        steps, updates = sum(r.steps for r in rounds), sum(r.updates for r in rounds)
        assert abs(updates - steps / 2) <= 2 * copies


def test_actions_are_random_until_learning_starts() -> None:
    agent = worlds.make("ddpg", settings={"learning_starts": 200, "noise_std": 0.0, "exploration_noise": "none"})
    assert isinstance(agent, OffPolicyAgent)
    while agent._steps < 200:
        assert agent.step(0).updates == 0
    actions = agent.memory._columns["actions"][:200]
    assert actions.min() < -0.9
    assert actions.max() > 0.9
    assert abs(actions.mean()) < 0.15
    agent.step(0)
    start = len(agent.memory) - 2
    rows = agent.memory._columns["observations"][start : start + 2]
    low, high = -2.0, 2.0
    with torch.no_grad():
        now = agent.decision(torch.from_numpy(rows)).numpy()
    assert ((now >= low) & (now <= high)).all()


def test_actions_are_stretched_to_the_bounds_and_infinite_ones_refused() -> None:
    from galley.data.environments.layout import ActionLayout

    scale = ActionScale(ActionLayout("box", (1, 1), (-2.0, 0.0), (4.0, 1.0), (2,)))
    assert scale(np.array([[-1.0, 1.0], [0.0, 0.0]], np.float32)).tolist() == [[-2.0, 1.0], [1.0, 0.5]]
    with pytest.raises(GalleyError) as caught:
        ActionScale(ActionLayout("box", (1,), (-np.inf,), (np.inf,), (1,)))
    assert caught.value.code == "environment-unsupported"


def test_drifting_noise_equals_stable_baselines3_and_ends_with_the_episode() -> None:
    from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

    ours = Exploration("ornstein-uhlenbeck", 0.3, 2, 1, seed=0)
    theirs = OrnsteinUhlenbeckActionNoise(np.zeros(1), 0.3 * np.ones(1))
    noise = np.random.default_rng(0).standard_normal((50, 2, 1))
    for step in range(50):
        got = ours.added(np.zeros((2, 1), np.float32))
        np.random.seed(0)
        previous = theirs.noise_prev
        expected = previous + 0.15 * -previous * 0.01 + 0.3 * 0.1 * noise[step, 0]
        theirs.noise_prev = expected
        assert got[0] == pytest.approx(expected, abs=1e-6)
    ours.ended(np.array([True, False]))
    assert ours._drift[0] == 0.0
    assert ours._drift[1] != 0.0


def test_more_dropped_quantiles_than_there_are_is_refused() -> None:
    with pytest.raises(GalleyError) as caught:
        worlds.make("tqc", settings={"num_quantiles": 2, "num_dropped": 2})
    assert caught.value.code == "plan-contradiction"


def test_the_decision_is_the_mean_of_the_actor() -> None:
    agent = learned("sac")
    observations = torch.randn(6, 3)
    with torch.no_grad():
        actions, _ = agent._learner._actor(observations, torch.zeros(6, 1))
        assert torch.allclose(agent.decision(observations), 2.0 * actions, atol=1e-6)


def test_images_go_through_their_encoder() -> None:
    """The general path: both networks see pixels, and both encoders are trained by their own loss."""
    for name in ("sac", "td3"):
        agent = worlds.make(name, words="methods.control.test_continuous:pixels", settings={"learning_starts": 8})
        before = [p.detach().clone() for part in ("critic", "actor") for p in agent.parameters(part)]
        for _ in range(6):
            agent.step(0)
        after = [p for part in ("critic", "actor") for p in agent.parameters(part)]
        assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Pixels(worlds.Constant):
    """Nothing but noise to see."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.integers(0, 255, (6, 6, 1), np.uint8), {}

    def step(self, action: Any) -> Any:
        return self.np_random.integers(0, 255, (6, 6, 1), np.uint8), float(action[0]), False, False, {}


def pixels() -> Any:
    return gymnasium.wrappers.TimeLimit(Pixels(box=True), 10)


class Tracking(gymnasium.Env[Any, Any]):
    """The best action is half of what is seen, with the sign turned; whatever is done, something new is seen next."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._seen = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._seen, {}

    def step(self, action: Any) -> Any:
        reward = -float(abs(action[0] + self._seen[0] / 2))
        self._seen = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._seen, reward, False, False, {}


def tracking() -> Any:
    return gymnasium.wrappers.TimeLimit(Tracking(), 20)


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_it_learns_to_act_well_where_it_has_not_been(name: str) -> None:
    """20 steps an episode: random actions cost about 21, and learned ones, in episodes never seen, little."""
    settings: dict[str, Any] = {"gamma": 0.5, "learning_rate": 3e-3, "batch_size": 64, "buffer_size": 2000}
    settings |= {"learning_starts": 200, "train_frequency": 2, "gradient_steps": 2}
    if name in SOFT:
        settings["initial_entropy_coefficient"] = 0.1
    if name != "crossq":
        settings["tau"] = 0.05
    words = "methods.control.test_continuous:tracking"
    agent = worlds.make(name, words=words, settings=settings, hidden=(32, 32))
    before = returns(agent, words)
    for _ in range(450):
        agent.step(0)
    after = returns(agent, words)
    assert before < -5
    assert after > -3


def returns(agent: Any, words: str) -> float:
    episodes = play(worlds.environments(words, 4), DecisionPlayer(agent.decision), 8, seed=77)
    return float(np.mean([episode.ret for episode in episodes]))


@pytest.mark.parametrize("name", NAMES)
def test_the_planned_memory_is_what_is_allocated(name: str) -> None:
    kind = registry.get(name)
    agent = worlds.make(name, hidden=(16, 8))
    made = worlds.environments("gym:Pendulum-v1", 1)
    facts = WorldFacts(made.observations, made.actions, NetworkSpec((16, 8), "relu"), 1000)
    small = {key: value for key, value in worlds.SMALL.items() if key in kind.Config.model_fields}
    planned = kind(kind.Config.model_validate(small)).memory_bytes(facts)
    state: Any = agent.state()["learner"]
    held = (
        {"critic": state["critic"]} if name in SOFT else {k: state[k] for k in ("critics", "target_critics", "target")}
    )
    networks = numbers_in({**held, "actor": state["actor"]}, without="adam")
    assert planned["networks"] == pytest.approx(4 * networks, abs=64), "but for counters"
    trained = sum(p.numel() for part in ("critic", "actor") for p in agent.parameters(part))
    assert planned["optimizer"] == 12 * trained


def numbers_in(state: Any, *, without: str) -> int:
    if isinstance(state, torch.Tensor):
        return state.numel()
    return sum(numbers_in(value, without=without) for key, value in state.items() if key != without)


def test_products_in_bfloat16_are_near_and_end_with_their_block() -> None:
    from galley.models.control.fused_mlp import products_in

    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(256, 256, generator=generator), torch.randn(256, 256, generator=generator)
    exact = left @ right
    with products_in("bfloat16"):
        assert settings.fp32_precision == "bf16"
        rounded = left @ right
    assert torch.linalg.vector_norm(rounded - exact) < 0.01 * torch.linalg.vector_norm(exact)
    with pytest.raises(ZeroDivisionError), products_in("bfloat16"):
        raise ZeroDivisionError
    assert settings.fp32_precision == before
    with products_in("float32"):
        assert torch.equal(left @ right, exact)
