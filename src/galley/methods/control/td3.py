"""Twin delayed deterministic policy gradient: two critics, a smoothed target, and an actor that moves less often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, Loss, World, WorldFacts
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from galley.data.environments.layout import ActionKind
    from galley.methods.control.exploration import NoiseKind
    from galley.methods.control.off_policy import OffPolicyAgent, Updates
    from galley.methods.control.replay import ReplayMemory

    Array = np.ndarray[Any, Any]
    Batch = Mapping[str, Tensor]


class Td3Config(ControlConfig):
    """Settings of TD3."""

    num_envs: int = Field(1, ge=1, description="copies of the environment played together")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam, for actor and critics")
    buffer_size: int = Field(1_000_000, ge=1, description="transitions that the replay memory holds")
    learning_starts: int = Field(1_000, ge=0, description="environment steps of random actions before the first update")
    batch_size: int = Field(256, ge=1, description="transitions of a minibatch")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of one step")
    tau: float = Field(0.005, gt=0, le=1, description="share by which targets follow, with each update of the actor")
    train_frequency: int = Field(1, ge=1, description="environment steps, over all copies, between updates")
    gradient_steps: int = Field(1, ge=1, description="updates after each `train_frequency` steps")
    n_step: int = Field(1, ge=1, le=100, description="rewards summed up before the critics' value stands for the rest")
    policy_delay: int = Field(2, ge=1, description="updates of the critics for one of the actor and the targets")
    target_noise: float = Field(0.2, ge=0, description="deviation of the noise on target actions, in -1 .. 1")
    target_noise_clip: float = Field(0.5, ge=0, description="bound of that noise")
    exploration_noise: Literal["none", "normal", "ornstein-uhlenbeck"] = Field(
        "normal", description="added to actions while training"
    )
    noise_std: float = Field(0.1, ge=0, description="of that noise, where actions go from -1 to 1")
    matrix_products: Literal["float32", "bfloat16"] = Field(
        "float32", description="precision of the products inside updates; weights and sums stay float32"
    )


class TwinDelayed:
    """Off-policy learning with a deterministic actor."""

    name: ClassVar[str] = "td3"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("box",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/1802.09477"
    Config: ClassVar[type[ControlConfig]] = Td3Config

    def __init__(self, config: Td3Config) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies of the environment."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Two critics and the actor, with targets; and the replay memory."""
        from galley.methods.control.continuous import memory_bytes

        return memory_bytes(self.config, facts, critics=2, targets=2, actor_targets=1)

    def agent(self, world: World) -> OffPolicyAgent:
        """Random weights, empty memory."""
        from galley.methods.control.continuous import agent_of
        from galley.methods.control.offline import seeded

        c = self.config
        settings = DeterministicSettings(
            c.learning_rate,
            c.batch_size,
            c.tau,
            c.exploration_noise,
            c.noise_std,
            c.matrix_products,
            num_critics=2,
            policy_delay=c.policy_delay,
            target_noise=c.target_noise,
            target_noise_clip=c.target_noise_clip,
        )
        return agent_of(c, world, seeded(world.seed, lambda: DeterministicLearner(world, settings)))


@dataclass(frozen=True)
class DeterministicSettings:
    """What the learner needs of a method's settings; see `Td3Config`. DDPG is one critic, no delay and no noise."""

    learning_rate: float
    batch_size: int
    tau: float
    exploration_noise: NoiseKind
    noise_std: float
    matrix_products: str
    num_critics: int = 1
    policy_delay: int = 1
    target_noise: float = 0.0
    target_noise_clip: float = 0.0


class DeterministicLearner:
    """Actor and critics at work; see `Learner`."""

    parts: tuple[str, ...] = ("critic", "actor")

    def __init__(self, world: World, settings: DeterministicSettings) -> None:
        import torch

        from galley.methods.control.exploration import ActionScale, Exploration

        self._settings, self._device = settings, world.device
        self._generator = torch.Generator().manual_seed(world.seed)
        self.native = ActionScale(world.facts.actions)
        assert world.environments is not None
        copies, self._size = world.environments.num_envs, world.facts.actions.size
        self.exploration = Exploration(
            settings.exploration_noise, settings.noise_std, copies, self._size, seed=world.seed
        )
        self._make(world, copies)
        self._count = 0
        self._last_actor: dict[str, float] = {}

    def _make(self, world: World, copies: int) -> None:
        import copy

        from galley.methods.control.trained import Target, Trained
        from galley.models.control.actors import DeterministicActor, DeterministicPass
        from galley.models.control.critics import Critics, critic_pass, twin_of
        from galley.models.control.decision import Decision, DecisionSpec

        facts, settings, rows = world.facts, self._settings, self._settings.batch_size
        activation = facts.network.activation
        self.decision = Decision(DecisionSpec(facts.observations, facts.actions, facts.network, "squashed"))
        self._actor = DeterministicActor(self.decision, self._generator).to(world.device)
        self._critics = Critics(
            facts.observations,
            facts.actions,
            facts.network,
            number=settings.num_critics,
            generator=self._generator,
        ).to(world.device)
        self._trained = Trained(self._actor, settings.learning_rate)
        self._trained_critics = Trained(self._critics, settings.learning_rate)
        self._target = Target(copy.deepcopy(self._actor).requires_grad_(False), self._trained)
        self._target_critics = Target(twin_of(self._critics), self._trained_critics)
        self._pass = DeterministicPass(self._actor, activation, rows)
        self._acting = DeterministicPass(self._actor, activation, copies)
        self._target_pass = DeterministicPass(self._target.module, activation, rows)
        self._critic_pass = critic_pass(self._critics, rows)
        self._target_critic_pass = critic_pass(self._target_critics.module, rows)

    def act(self, observations: Array, *, random: bool) -> Array:
        """The policy's action with noise."""
        import torch

        if random:
            return self.exploration.uniform()
        with torch.no_grad():
            actions = self._acting.act(torch.from_numpy(observations).to(self._device))
        return self.exploration.added(actions.cpu().numpy())

    def ended(self, over: Array) -> None:
        """New episodes."""
        self.exploration.ended(over)

    def sample(self, memory: ReplayMemory) -> dict[str, Tensor]:
        """A minibatch with standard normal noise for the target's actions."""
        import torch

        rows = memory.sample(self._settings.batch_size)
        rows["noise"] = torch.randn(self._settings.batch_size, self._size, generator=self._generator)
        return {name: column.to(self._device) for name, column in rows.items()}

    def _smoothed(self, actions: Tensor, noise: Tensor) -> Tensor:
        bound = self._settings.target_noise_clip
        return (actions + (noise * self._settings.target_noise).clamp(-bound, bound)).clamp(-1.0, 1.0)

    def loss(self, part: str, batch: Batch) -> Loss:
        """Sum over rows of the squared distance of the critics to their target; of minus the first critic's value."""
        import torch

        rows = len(batch["rewards"])
        if part == "actor":
            observations = batch["observations"]
            return Loss(-self._critics(observations, self._actor(observations))[0].sum(), rows)
        with torch.no_grad():
            actions = self._smoothed(self._target.module(batch["successors"]), batch["noise"])
            lower = self._target_critics.module(batch["successors"], actions)[..., 0].amin(dim=0)
            targets = batch["rewards"] + batch["discounts"] * lower
        return Loss((self._critics(batch["observations"], batch["actions"])[..., 0] - targets).square().sum(), rows)

    def update(self, memory: ReplayMemory, count: int) -> Updates:
        """Critics from every minibatch; actor and targets from every `policy_delay`-th."""
        import torch

        from galley.methods.control.off_policy import Updates
        from galley.methods.control.trained import Means
        from galley.models.control.fused_mlp import products_in

        critics, actors = Means("critic_loss", "grad_norm", "q_mean"), Means("actor_loss")
        with products_in(self._settings.matrix_products), torch.no_grad():
            for _ in range(count):
                self._count += 1
                batch = self.sample(memory)
                critics.add(*self._update_critics(batch))
                if self._count % self._settings.policy_delay == 0:
                    actors.add(self._update_actor(batch))
                    self._target.follow(self._settings.tau)
                    self._target_critics.follow(self._settings.tau)
        found = critics.read()
        norm = found.pop("grad_norm")
        self._last_actor = actors.read() or self._last_actor
        metrics = {**found, **self._last_actor}
        return Updates(found["critic_loss"], norm, self._settings.learning_rate, metrics)

    def _update_critics(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        actions = self._smoothed(self._target_pass.act(batch["successors"]), batch["noise"])
        lower = self._target_critic_pass.values(batch["successors"], actions)[..., 0].amin(dim=0)
        targets = batch["rewards"] + batch["discounts"] * lower
        values_KB1 = self._critic_pass.values(batch["observations"], batch["actions"])
        distance_KB1 = values_KB1 - targets[:, None]
        mean = values_KB1.mean()
        self._critic_pass.learn(distance_KB1 * (2.0 / len(targets)))
        self._trained_critics.step()
        return distance_KB1.square().sum() / len(targets), self._trained_critics.grad_norm(), mean

    def _update_actor(self, batch: Batch) -> Tensor:
        actions = self._pass.act(batch["observations"])
        values_KB1 = self._critic_pass.values(batch["observations"], actions)
        loss = -values_KB1[0].mean()
        down_KB1 = values_KB1.new_zeros(values_KB1.shape)
        down_KB1[0] = -1.0 / len(actions)
        self._pass.learn(self._critic_pass.to_actions(down_KB1))
        self._trained.step()
        return loss

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of one part."""
        return (self._trained if part == "actor" else self._trained_critics).flat.parameters

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        return {
            "actor": self._trained.state(),
            "critics": self._trained_critics.state(),
            "target": self._target.state(),
            "target_critics": self._target_critics.state(),
            "exploration": self.exploration.state(),
            "generator": self._generator.get_state(),
            "count": self._count,
            "last_actor": dict(self._last_actor),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._trained.load_state(state["actor"])
        self._trained_critics.load_state(state["critics"])
        self._target.load_state(state["target"])
        self._target_critics.load_state(state["target_critics"])
        self.exploration.load_state(state["exploration"])
        self._generator.set_state(state["generator"])
        self._count, self._last_actor = state["count"], dict(state["last_actor"])


METHOD = TwinDelayed
