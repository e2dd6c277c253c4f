"""CrossQ: SAC without target networks; batch renormalisation over both halves of a transition keeps it stable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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

_BETAS = (0.5, 0.999)
"""Of Adam: less momentum, since there is no slow target (the paper's appendix A)."""
_WHOLE = ("observations", "actions", "successors", "next_noise")


class CrossQConfig(ControlConfig):
    """Settings of CrossQ."""

    num_envs: int = Field(1, ge=1, description="copies of the environment played together")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam, for actor, critics and temperature")
    buffer_size: int = Field(1_000_000, ge=1, description="transitions that the replay memory holds")
    learning_starts: int = Field(100, ge=0, description="environment steps of random actions before the first update")
    batch_size: int = Field(256, ge=2, description="transitions of a minibatch")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of one step")
    train_frequency: int = Field(1, ge=1, description="environment steps, over all copies, between updates")
    gradient_steps: int = Field(1, ge=1, description="updates after each `train_frequency` steps")
    n_step: int = Field(1, ge=1, le=100, description="rewards summed up before the critics' value stands for the rest")
    policy_delay: int = Field(3, ge=1, description="updates of the critics for one of actor and temperature")
    critic_width: int = Field(
        0, ge=0, le=65_536, description="units of each of the critics' hidden layers; 0 takes the network's own"
    )
    renorm_warmup: int = Field(
        100_000, ge=0, description="updates before running moments correct those of the minibatch"
    )
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


class CrossQ:
    """Off-policy learning with a stochastic actor and normalised critics."""

    name: ClassVar[str] = "crossq"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("box",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/1902.05605"
    Config: ClassVar[type[ControlConfig]] = CrossQConfig

    def __init__(self, config: CrossQConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies of the environment."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Two critics and the actor; and the replay memory."""
        from galley.methods.control.continuous import memory_bytes
        from galley.methods.control.sizes import adam_bytes, decision_numbers, encoder_numbers

        parts = dict(memory_bytes(self.config, facts, critics=0, targets=0, actor_outputs=2))
        wide = replace(facts, network=critic_network(self.config, facts.network))
        normalised = encoder_numbers(facts.observations)[0] + facts.actions.size + sum(wide.network.hidden)
        moments = scales = 2 * 2 * normalised
        critics = 2 * decision_numbers(wide, 1, more_inputs=facts.actions.size) + scales
        parts["networks"] += 4 * (critics + moments)
        parts["optimizer"] += adam_bytes(critics)
        return parts

    def agent(self, world: World) -> OffPolicyAgent:
        """Random weights, empty memory."""
        from galley.methods.control.continuous import soft_agent

        return soft_agent(
            self.config,
            world,
            lambda generator: RenormCritic(self.config, world, generator),
            actor_delay=self.config.policy_delay,
            betas=_BETAS,
        )


def critic_network(config: CrossQConfig, network: NetworkSpec) -> NetworkSpec:
    """Of the critics: the actor's with other widths."""
    return replace(network, hidden=(config.critic_width,) * len(network.hidden)) if config.critic_width else network


class RenormCritic:
    """Two critics with batch renormalisation; see `SoftCritic`."""

    def __init__(self, config: CrossQConfig, world: World, generator: Any) -> None:
        from galley.methods.control.trained import Trained
        from galley.models.control.renorm import RenormCritics

        facts = world.facts
        self._critics = RenormCritics(
            facts.observations,
            facts.actions,
            critic_network(config, facts.network),
            number=2,
            warmup=config.renorm_warmup,
            generator=generator,
        ).to(world.device)
        self.trained: Trained = Trained(self._critics, config.learning_rate, betas=_BETAS)

    def row_losses(self, batch: Mapping[str, Tensor], actor: SquashedActor, coefficient: Tensor) -> Tensor:
        """Half the squared distance of both critics to r + gamma (min Q - alpha log pi), [B].

        The moments are those of the whole minibatch, which stands in every row of one that `prepare` made.
        """
        import torch

        whole = {name: batch[f"whole_{name}"][0] for name in _WHOLE} if "place" in batch else batch
        with torch.no_grad():
            actions, log_prob = actor(whole["successors"], whole["next_noise"])
        now, after, _ = self._both(whole, actions)
        if "place" in batch:
            now, after, log_prob = now[:, batch["place"]], after[:, batch["place"]], log_prob[batch["place"]]
        return self._distances(batch, now, after, log_prob, coefficient).sum(dim=0)

    def _both(self, batch: Mapping[str, Tensor], next_actions: Tensor) -> tuple[Tensor, Tensor, Any]:
        """Values of both halves of the transitions from one pass, [K, B] each, and the batch's moments."""
        import torch

        observations = torch.cat([batch["observations"], batch["successors"]])
        values_KB, statistics = self._critics.of_batch(observations, torch.cat([batch["actions"], next_actions]))
        now, after = values_KB.chunk(2, dim=1)
        return now, after.detach(), statistics

    def _distances(
        self, batch: Mapping[str, Tensor], now: Tensor, after: Tensor, log_prob: Tensor, coefficient: Tensor
    ) -> Tensor:
        """Halves of squared distances, [K, B]; equation 3."""
        lower = after.min(dim=0).values
        targets = batch["rewards"] + batch["discounts"] * (lower - coefficient * log_prob)
        return 0.5 * (now - targets).square()

    def value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The lower of both values by the running moments, [B]."""
        return self._critics(observations, actions).min(dim=0).values  # type: ignore[no-any-return]

    def learn(
        self, batch: Mapping[str, Tensor], next_actions: Tensor, next_log_prob: Tensor, coefficient: Tensor
    ) -> Tensor:
        """By autograd: through the batch's moments."""
        import torch

        with torch.enable_grad():
            now, after, statistics = self._both(batch, next_actions)
            loss = self._distances(batch, now, after, next_log_prob, coefficient).sum() / len(next_actions)
        self.trained.flat.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        self.trained.step()
        self._critics.absorb(statistics)
        return loss.detach()

    def slope(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """By autograd."""
        import torch

        with torch.enable_grad():
            actions = actions.detach().requires_grad_()
            value = self.value(observations, actions)
            slope = torch.autograd.grad(value.sum(), actions)[0]
        return value.detach(), slope

    def prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Every row carries the whole minibatch (without taking memory) and its own place in it."""
        import torch

        rows = len(batch["rewards"])
        whole = {f"whole_{name}": batch[name].expand(rows, *batch[name].shape) for name in _WHOLE}
        return {**batch, **whole, "place": torch.arange(rows, device=batch["rewards"].device)}

    def after_update(self) -> None:
        """There are no targets."""

    def state(self) -> Mapping[str, Any]:
        """Critics with their running moments."""
        moments = {name: buffer.clone() for name, buffer in self._critics.named_buffers()}
        return {"critics": self.trained.state(), "moments": moments}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.trained.load_state(state["critics"])
        for name, buffer in self._critics.named_buffers():
            buffer.copy_(state["moments"][name])


METHOD = CrossQ
