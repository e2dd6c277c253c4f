"""Advantage actor-critic: one update for each short rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, Loss, Outcome, World, WorldFacts
from galley.methods.control.sizes import on_policy_bytes
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from galley.data.environments.layout import ActionKind

    Array = np.ndarray[Any, Any]


class A2cConfig(ControlConfig):
    """Settings of `method: a2c`."""

    num_envs: int = Field(8, ge=1, le=4096, description="copies of the environment played together")
    num_steps: int = Field(8, ge=1, description="steps in each copy between two updates")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of the optimiser")
    anneal_learning_rate: bool = Field(True, description="linearly to 0 over the training")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a reward one step later")
    gae_lambda: float = Field(1.0, ge=0, le=1, description="of generalised advantage estimation; 1: n-step returns")
    normalise_advantages: bool = Field(False, description="to mean 0 and deviation 1 in each update")
    entropy_coefficient: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    value_coefficient: float = Field(0.5, ge=0, description="weight of the value loss")
    max_grad_norm: float = Field(0.5, gt=0, description="longer gradients are shortened to this L2 norm")
    optimizer: Literal["rmsprop", "rmsprop-tf", "adam"] = Field(
        "rmsprop", description="RMSProp as in PyTorch; as in TensorFlow 1, with epsilon inside the root; or Adam"
    )
    normalise_observations: bool = Field(
        True, description="shift and scale observations of plain numbers by their running mean and deviation"
    )
    normalise_rewards: bool = Field(True, description="divide rewards by the running deviation of discounted returns")
    initial_log_std: float = Field(0.0, ge=-5, le=2, description="of actions that are numbers: log deviation at first")
    noise_steps: int = Field(
        1,
        ge=1,
        le=10_000,
        description="steps that a draw of noise is kept for, where actions are numbers",
    )


class A2c:
    """Synchronous advantage actor-critic.

    loss = -mean(A log p(action)) + value_coefficient mean((V - R)^2) - entropy_coefficient mean(H)

    Source: Mnih et al. 2016, https://arxiv.org/abs/1602.01783, algorithm S3, with synchronous copies.
    """

    name: ClassVar[str] = "a2c"
    experience: ClassVar[Experience] = "on-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi-discrete", "binary", "box")
    network: ClassVar[NetworkSpec] = NetworkSpec((64, 64), "tanh")
    paper: ClassVar[str] = "https://arxiv.org/abs/1602.01783"
    Config: ClassVar[type[ControlConfig]] = A2cConfig

    def __init__(self, config: A2cConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies that it plays in."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of a rollout with its rows, both networks and the optimiser."""
        return on_policy_bytes(facts, self.config.num_steps * self.config.num_envs)

    def agent(self, world: World) -> A2cAgent:
        """An agent that has not learned yet."""
        return A2cAgent(self.config, world)


class A2cAgent:
    """A2C at work; see `Agent`."""

    parts: tuple[str, ...] = ("policy",)

    def __init__(self, config: A2cConfig, world: World) -> None:
        from galley.methods.control.flat_adam import FlatAdam, FlatRmsprop
        from galley.methods.control.on_policy import OnPolicy

        self.config = config
        self._total_steps = world.facts.steps
        self._core = OnPolicy(
            world,
            num_steps=config.num_steps,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            normalise_observations=config.normalise_observations,
            normalise_rewards=config.normalise_rewards,
            initial_log_std=config.initial_log_std,
            noise_steps=config.noise_steps,
        )
        self.decision = self._core.networks.decision
        self._optimiser: FlatRmsprop | FlatAdam
        if config.optimizer == "adam":
            self._optimiser = FlatAdam(self._core.flat, epsilon=1e-5)
        else:
            self._optimiser = FlatRmsprop(self._core.flat, tensorflow=config.optimizer == "rmsprop-tf")
        self._rows: Mapping[str, Array] = {}

    def step(self, done: int) -> Outcome:
        """A rollout, and one update."""
        config, core = self.config, self._core
        left = max(0.0, 1.0 - done / max(1, self._total_steps))
        rate = config.learning_rate * (left if config.anneal_learning_rate else 1.0)
        gathered = core.gather()
        self._rows = self._as_learned(gathered.rows)
        metrics = self._gradient(self._rows)
        norm = core.flat.clip(config.max_grad_norm)
        self._optimiser.step(rate)
        core.updated()
        loss = metrics.pop("loss")
        metrics["explained_variance"] = gathered.explained_variance
        if core.networks.log_std is not None:
            metrics["std"] = float(core.networks.log_std.detach().exp().mean())
        return Outcome(gathered.steps, 1, loss, norm, rate, metrics, gathered.episodes)

    def _as_learned(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        from galley.methods.control.rollouts import standardised

        found = dict(rows)
        if self.config.normalise_advantages:
            found["advantages"] = standardised(found["advantages"])
        return found

    def _gradient(self, batch: Mapping[str, Array]) -> dict[str, float]:
        """Write the gradient of the loss into the flat one."""
        from galley.methods.control.written_out import a2c_gradient

        config, core = self.config, self._core
        if core.written is not None:
            return a2c_gradient(
                core.written,
                batch,
                entropy_coefficient=config.entropy_coefficient,
                value_coefficient=config.value_coefficient,
            )
        loss = self.loss("policy", core.tensors(batch))
        core.flat.gradient.zero_()
        mean = loss.total / loss.denominator
        mean.backward()  # type: ignore[no-untyped-call]
        means = {name: float(total) / count for name, (total, count) in loss.metrics.items()}
        return {"loss": float(mean.detach()), **means}

    def sample(self) -> Mapping[str, Tensor]:
        """Rows of the last rollout: observations, actions, log_probs, values, advantages, returns."""
        return self._core.tensors(self._rows)

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """See `A2c`; a sum over rows."""
        config = self.config
        judged = self._core.networks.judge(batch["observations"], batch["actions"])
        return a2c_loss(
            *judged,
            batch,
            entropy_coefficient=config.entropy_coefficient,
            value_coefficient=config.value_coefficient,
        )

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """All of them: one loss trains both networks."""
        return self._core.flat.parameters

    def state(self) -> Mapping[str, Any]:
        """Networks, optimiser, normalisation, generator and environments."""
        return {"core": self._core.state(), "optimizer": self._optimiser.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._core.load_state(state["core"])
        self._optimiser.load_state(state["optimizer"])


def a2c_loss(
    log_probs: Tensor,
    entropies: Tensor,
    values: Tensor,
    batch: Mapping[str, Tensor],
    *,
    entropy_coefficient: float,
    value_coefficient: float,
) -> Loss:
    """The loss, as a sum over rows.

    Args:
        log_probs: of the actions, by the policy now, [B].
        entropies: of the policy now, [B].
        values: now, [B].
        batch: `advantages` and `returns`, [B] each.
        entropy_coefficient: see `A2cConfig`.
        value_coefficient: see `A2cConfig`.
    """
    policy_loss = -(batch["advantages"] * log_probs).sum()
    value_loss = (values - batch["returns"]).square().sum()
    entropy = entropies.sum()
    number = len(values)
    total = policy_loss - entropy_coefficient * entropy + value_coefficient * value_loss
    parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    metrics = {name: (part.detach().item(), float(number)) for name, part in parts.items()}
    return Loss(total, number, metrics)


METHOD = A2c
