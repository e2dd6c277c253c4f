"""Deep deterministic policy gradient: one critic, and an actor that climbs it. TD3 without its three corrections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, World, WorldFacts
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionKind
    from galley.methods.control.off_policy import OffPolicyAgent


class DdpgConfig(ControlConfig):
    """Settings of DDPG."""

    num_envs: int = Field(1, ge=1, description="copies of the environment played together")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam, for actor and critic")
    buffer_size: int = Field(1_000_000, ge=1, description="transitions that the replay memory holds")
    learning_starts: int = Field(1_000, ge=0, description="environment steps of random actions before the first update")
    batch_size: int = Field(256, ge=1, description="transitions of a minibatch")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of one step")
    tau: float = Field(0.005, gt=0, le=1, description="share by which the targets follow after each update")
    train_frequency: int = Field(1, ge=1, description="environment steps, over all copies, between updates")
    gradient_steps: int = Field(1, ge=1, description="updates after each `train_frequency` steps")
    n_step: int = Field(1, ge=1, le=100, description="rewards summed up before the critic's value stands for the rest")
    exploration_noise: Literal["none", "normal", "ornstein-uhlenbeck"] = Field(
        "normal", description="added to actions while training"
    )
    noise_std: float = Field(0.1, ge=0, description="of that noise, where actions go from -1 to 1")
    matrix_products: Literal["float32", "bfloat16"] = Field(
        "float32", description="precision of the products inside updates; weights and sums stay float32"
    )


class DeepDeterministic:
    """Off-policy learning with a deterministic actor and one critic."""

    name: ClassVar[str] = "ddpg"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("box",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/1509.02971"
    Config: ClassVar[type[ControlConfig]] = DdpgConfig

    def __init__(self, config: DdpgConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies of the environment."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Critic and actor, with targets; and the replay memory."""
        from galley.methods.control.continuous import memory_bytes

        return memory_bytes(self.config, facts, critics=1, targets=1, actor_targets=1)

    def agent(self, world: World) -> OffPolicyAgent:
        """Random weights, empty memory."""
        from galley.methods.control.continuous import agent_of
        from galley.methods.control.offline import seeded
        from galley.methods.control.td3 import DeterministicLearner, DeterministicSettings

        c = self.config
        settings = DeterministicSettings(
            c.learning_rate, c.batch_size, c.tau, c.exploration_noise, c.noise_std, c.matrix_products
        )
        return agent_of(c, world, seeded(world.seed, lambda: DeterministicLearner(world, settings)))


METHOD = DeepDeterministic
