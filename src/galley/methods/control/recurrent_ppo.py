"""PPO with a memory: for worlds in which one observation does not say enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, World, WorldFacts
from galley.methods.control.ppo import PpoAgent, PpoConfig, collection
from galley.methods.control.sizes import adam_bytes, encoder_numbers, on_policy_bytes, perceptron_numbers
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionKind


class RecurrentPpoConfig(ControlConfig):
    """Settings of `method: recurrent-ppo`."""

    num_envs: int = Field(8, ge=1, le=4096, description="copies of the environment played together")
    num_steps: int = Field(128, ge=1, description="steps in each copy between two rounds of updates")
    batch_size: int = Field(256, ge=1, description="steps of a minibatch of whole sequences, about")
    num_epochs: int = Field(10, ge=1, le=100, description="times that each step is learned from")
    lstm_units: int = Field(64, ge=1, le=65_536, description="of each of both memories")
    sequence_length: int | None = Field(32, ge=1, description="longest sequence that a gradient flows through")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam")
    anneal: Literal["none", "learning_rate", "both"] = Field(
        "learning_rate",
        description="falls linearly to 0 over the training: nothing, the learning rate, or clip_range too",
    )
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a reward one step later")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="of generalised advantage estimation")
    clip_range: float = Field(0.2, gt=0, description="the ratio of probabilities gains nothing beyond 1 +- this")
    entropy_coefficient: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    value_coefficient: float = Field(0.5, ge=0, description="weight of the value loss")
    max_grad_norm: float = Field(0.5, gt=0, description="longer gradients are shortened to this L2 norm")
    target_kl: float | None = Field(
        None, gt=0, description="updates of a round end when the policy moved by 1.5 times this; null: never"
    )
    normalise_observations: bool = Field(
        False, description="shift and scale observations of plain numbers by their running mean and deviation"
    )
    normalise_rewards: bool = Field(False, description="divide rewards by the running deviation of discounted returns")
    initial_log_std: float = Field(0.0, ge=-5, le=2, description="of actions that are numbers: log deviation at first")
    noise_steps: int = Field(
        1, ge=1, le=10_000, description="steps that a draw of noise is kept for, where actions are numbers"
    )


_OWN = {"lstm_units", "sequence_length"}


class RecurrentPpo:
    """PPO whose policy and critic each have an LSTM between encoder and hidden layers.

    Source: Hausknecht and Stone 2015, https://arxiv.org/abs/1507.06527, for the memory; the loss is PPO's over
    sequences, as in sb3-contrib's RecurrentPPO.
    """

    name: ClassVar[str] = "recurrent-ppo"
    experience: ClassVar[Experience] = "on-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi-discrete", "binary", "box")
    network: ClassVar[NetworkSpec] = NetworkSpec((64,), "tanh")
    paper: ClassVar[str] = "https://arxiv.org/abs/1507.06527"
    Config: ClassVar[type[ControlConfig]] = RecurrentPpoConfig

    def __init__(self, config: RecurrentPpoConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies that it plays in."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """As of PPO, with the memories' weights, and what they held before and after each step."""
        steps, units = self.config.num_steps * self.config.num_envs, self.config.lstm_units
        features, numbers = encoder_numbers(facts.observations)
        numbers += 2 * 4 * units * (features + units + 2)
        for outputs in (facts.actions.num_choices, 1):
            numbers += perceptron_numbers((units, *facts.network.hidden, outputs))
        rollout = on_policy_bytes(facts, steps)["rollout"] + steps * 4 * 4 * units * 3
        return {"rollout": rollout, "networks": 4 * numbers, "optimizer": adam_bytes(numbers)}

    def agent(self, world: World) -> PpoAgent:
        """An agent that has not learned yet."""
        from galley.methods.control.recurrent import RecurrentCore

        config = PpoConfig(**self.config.model_dump(exclude=_OWN))
        core = RecurrentCore(
            world,
            units=self.config.lstm_units,
            sequence_length=self.config.sequence_length,
            **collection(config),
        )
        return PpoAgent(config, world, core)


METHOD = RecurrentPpo
