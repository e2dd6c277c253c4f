"""Soft actor-critic: act well and as randomly as that allows; two critics, of which the lower one is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, World, WorldFacts
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionKind
    from galley.methods.control.off_policy import OffPolicyAgent
    from galley.methods.control.trained import Trained
    from galley.models.control.actors import SquashedActor


class SacConfig(ControlConfig):
    """Settings of soft actor-critic."""

    num_envs: int = Field(1, ge=1, description="copies of the environment played together")
    learning_rate: float = Field(3e-4, gt=0, le=1, description="of Adam, for actor, critics and temperature")
    buffer_size: int = Field(1_000_000, ge=1, description="transitions that the replay memory holds")
    learning_starts: int = Field(100, ge=0, description="environment steps of random actions before the first update")
    batch_size: int = Field(256, ge=1, description="transitions of a minibatch")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of one step")
    tau: float = Field(0.005, gt=0, le=1, description="share by which the target critics follow after each update")
    train_frequency: int = Field(1, ge=1, description="environment steps, over all copies, between updates")
    gradient_steps: int = Field(1, ge=1, description="updates after each `train_frequency` steps")
    n_step: int = Field(1, ge=1, le=100, description="rewards summed up before the critics' value stands for the rest")
    entropy_coefficient: float | Literal["auto"] = Field(
        "auto", description="weight of the entropy; `auto` learns it so that the target entropy is held"
    )
    initial_entropy_coefficient: float = Field(1.0, gt=0, description="where the learned weight begins")
    target_entropy: float | None = Field(
        None, description="in nats, over all numbers of an action, stretched to -1 .. 1; none takes minus their count"
    )
    exploration_noise: Literal["none", "normal", "ornstein-uhlenbeck"] = Field(
        "none", description="added to drawn actions while training"
    )
    noise_std: float = Field(0.1, ge=0, description="of that noise, where actions go from -1 to 1")
    matrix_products: Literal["float32", "bfloat16"] = Field(
        "float32", description="precision of the products inside updates; weights and sums stay float32"
    )


class SoftActorCritic:
    """Off-policy learning with a stochastic actor."""

    name: ClassVar[str] = "sac"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("box",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/1812.05905"
    Config: ClassVar[type[ControlConfig]] = SacConfig

    def __init__(self, config: SacConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies of the environment."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Two critics, their targets and the actor; and the replay memory."""
        from galley.methods.control.continuous import memory_bytes

        return memory_bytes(self.config, facts, critics=2, targets=2, outputs=1, actor_outputs=2)

    def agent(self, world: World) -> OffPolicyAgent:
        """Random weights, empty memory."""
        from galley.methods.control.continuous import soft_agent

        return soft_agent(self.config, world, lambda generator: TwinCritic(self.config, world, generator))


class TwinCritic:
    """Two critics and their targets; see `SoftCritic`."""

    def __init__(self, config: SacConfig, world: World, generator: Any) -> None:
        from galley.methods.control.trained import Target, Trained
        from galley.models.control.critics import Critics, critic_pass, twin_of

        facts = world.facts
        self._critics = Critics(facts.observations, facts.actions, facts.network, number=2, generator=generator)
        self._critics.to(world.device)
        self.trained: Trained = Trained(self._critics, config.learning_rate)
        self._target = Target(twin_of(self._critics), self.trained)
        self._pass = critic_pass(self._critics, config.batch_size)
        self._target_pass = critic_pass(self._target.module, config.batch_size)
        self._tau = config.tau

    def row_losses(self, batch: Mapping[str, Tensor], actor: SquashedActor, coefficient: Tensor) -> Tensor:
        """Half the squared distance of both critics to r + gamma (min Q' - alpha log pi), [B]; equation 5."""
        import torch

        with torch.no_grad():
            actions, log_prob = actor(batch["successors"], batch["next_noise"])
            lower = self._target.module(batch["successors"], actions)[..., 0].min(dim=0).values
            targets = batch["rewards"] + batch["discounts"] * (lower - coefficient * log_prob)
        values_KB = self._critics(batch["observations"], batch["actions"])[..., 0]
        losses: Tensor = 0.5 * (values_KB - targets).square().sum(dim=0)
        return losses

    def value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The lower of both values, [B]; equation 7."""
        values: Tensor = self._critics(observations, actions)[..., 0]
        return values.min(dim=0).values

    def learn(
        self, batch: Mapping[str, Tensor], next_actions: Tensor, next_log_prob: Tensor, coefficient: Tensor
    ) -> Tensor:
        """The gradient of `row_losses` at a value is its distance to the target."""
        lower = self._target_pass.values(batch["successors"], next_actions)[..., 0].amin(dim=0)
        targets = batch["rewards"] + batch["discounts"] * (lower - coefficient * next_log_prob)
        distance_KB1 = self._pass.values(batch["observations"], batch["actions"]) - targets[:, None]
        self._pass.learn(distance_KB1 / len(targets))
        self.trained.step()
        return 0.5 * distance_KB1.square().sum() / len(targets)

    def slope(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient flows through the lower critic of each row."""
        values_KB1 = self._pass.values(observations, actions)
        lower, which = values_KB1.min(dim=0)
        one = values_KB1.new_zeros(values_KB1.shape).scatter_(0, which[None], 1.0)
        return lower[:, 0], self._pass.to_actions(one)

    def prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows are independent already."""
        return batch

    def after_update(self) -> None:
        """Polyak averaging."""
        self._target.follow(self._tau)

    def state(self) -> Mapping[str, Any]:
        """Critics and targets."""
        return {"critics": self.trained.state(), "target": self._target.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.trained.load_state(state["critics"])
        self._target.load_state(state["target"])


METHOD = SoftActorCritic
