"""Truncated quantile critics: SAC whose critics know the whole distribution of returns and drop its highest part."""

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


class TqcConfig(ControlConfig):
    """Settings of TQC."""

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
    num_critics: int = Field(2, ge=1, le=20, description="critics side by side")
    num_quantiles: int = Field(25, ge=1, le=200, description="of each critic")
    num_dropped: int = Field(2, ge=0, description="highest target quantiles left out, for each critic")
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


class TruncatedQuantiles:
    """Off-policy learning with a stochastic actor and distributional critics."""

    name: ClassVar[str] = "tqc"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("box",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/2005.04269"
    Config: ClassVar[type[ControlConfig]] = TqcConfig

    def __init__(self, config: TqcConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies of the environment."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Critics, their targets and the actor; and the replay memory."""
        from galley.methods.control.continuous import memory_bytes

        number, quantiles = self.config.num_critics, self.config.num_quantiles
        return memory_bytes(self.config, facts, critics=number, targets=number, outputs=quantiles, actor_outputs=2)

    def agent(self, world: World) -> OffPolicyAgent:
        """Random weights, empty memory."""
        from galley.base import GalleyError
        from galley.methods.control.continuous import soft_agent

        c = self.config
        if c.num_dropped >= c.num_quantiles:
            raise GalleyError(
                "plan-contradiction",
                f"method.num_dropped is {c.num_dropped}, but each critic has {c.num_quantiles} quantiles",
                hint="drop fewer; 2 of 25 is usual",
            )
        return soft_agent(c, world, lambda generator: QuantileCritic(c, world, generator))


class QuantileCritic:
    """Critics of the distribution of returns; see `SoftCritic`."""

    def __init__(self, config: TqcConfig, world: World, generator: Any) -> None:
        import torch

        from galley.methods.control.trained import Target, Trained
        from galley.models.control.critics import Critics, critic_pass, twin_of

        facts, quantiles = world.facts, config.num_quantiles
        self._critics = Critics(
            facts.observations,
            facts.actions,
            facts.network,
            number=config.num_critics,
            outputs=quantiles,
            generator=generator,
        ).to(world.device)
        self.trained: Trained = Trained(self._critics, config.learning_rate)
        self._target = Target(twin_of(self._critics), self.trained)
        self._pass = critic_pass(self._critics, config.batch_size)
        self._target_pass = critic_pass(self._target.module, config.batch_size)
        self._tau = config.tau
        self._kept = config.num_critics * (quantiles - config.num_dropped)
        self._levels = (torch.arange(quantiles, device=world.device) + 0.5) / quantiles

    def _targets(
        self, batch: Mapping[str, Tensor], values_KBQ: Tensor, log_prob: Tensor, coefficient: Tensor
    ) -> Tensor:
        """The lower atoms of all critics together, discounted, [B, T]; equation 11."""
        pooled_BKQ = values_KBQ.transpose(0, 1).flatten(1)
        lower_BT = pooled_BKQ.sort(dim=1).values[:, : self._kept]
        after = lower_BT - (coefficient * log_prob)[:, None]
        return batch["rewards"][:, None] + batch["discounts"][:, None] * after

    def row_losses(self, batch: Mapping[str, Tensor], actor: SquashedActor, coefficient: Tensor) -> Tensor:
        """Mean over critics, quantiles and targets of the quantile Huber loss of each row, [B]; equation 12."""
        import torch

        with torch.no_grad():
            actions, log_prob = actor(batch["successors"], batch["next_noise"])
            values = self._target.module(batch["successors"], actions)
            targets_BT = self._targets(batch, values, log_prob, coefficient)
        values_KBQ = self._critics(batch["observations"], batch["actions"])
        delta_KBQT = targets_BT[:, None] - values_KBQ[..., None]
        size = delta_KBQT.detach().abs()
        huber = torch.where(size > 1, delta_KBQT.abs() - 0.5, 0.5 * delta_KBQT.square())
        below = (delta_KBQT.detach() < 0).float()
        losses: Tensor = ((self._levels[:, None] - below).abs() * huber).mean(dim=(0, 2, 3))
        return losses

    def value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Mean of all quantiles of all critics, [B]; equation 13."""
        return self._critics(observations, actions).mean(dim=(0, 2))  # type: ignore[no-any-return]

    def learn(
        self, batch: Mapping[str, Tensor], next_actions: Tensor, next_log_prob: Tensor, coefficient: Tensor
    ) -> Tensor:
        """The derivative of the Huber loss is the distance, clipped to one."""
        values = self._target_pass.values(batch["successors"], next_actions)
        targets_BT = self._targets(batch, values, next_log_prob, coefficient)
        values_KBQ = self._pass.values(batch["observations"], batch["actions"])
        delta_KBQT = targets_BT[:, None] - values_KBQ[..., None]
        clipped = delta_KBQT.clamp(-1.0, 1.0)
        weights = (self._levels[:, None] - (delta_KBQT < 0).float()).abs_()
        weighted = weights.mul_(clipped)
        self._pass.learn(weighted.sum(dim=3) / -delta_KBQT.numel())
        self.trained.step()
        # Huber: c (d - c / 2) with c the clipped distance d
        return weighted.mul_(delta_KBQT.sub_(clipped, alpha=0.5)).mean()

    def slope(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Every quantile counts the same."""
        import torch

        values_KBQ = self._pass.values(observations, actions)
        count = values_KBQ.shape[0] * values_KBQ.shape[2]
        value = values_KBQ.mean(dim=(0, 2))
        return value, self._pass.to_actions(torch.full_like(values_KBQ, 1.0 / count))

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


METHOD = TruncatedQuantiles
