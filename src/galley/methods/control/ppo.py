"""Proximal policy optimisation: several epochs over each rollout, with a limit on how far the policy moves."""

from __future__ import annotations

import math
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
    from galley.methods.control.on_policy import OnPolicy
    from galley.methods.control.recurrent import RecurrentCore

    PpoCore = OnPolicy | RecurrentCore

    Array = np.ndarray[Any, Any]


class PpoConfig(ControlConfig):
    """Settings of `method: ppo`."""

    num_envs: int = Field(16, ge=1, le=4096, description="copies of the environment played together")
    num_steps: int = Field(64, ge=1, description="steps in each copy between two rounds of updates")
    batch_size: int = Field(256, ge=1, description="steps of a minibatch, about: pieces are of nearly equal size")
    num_epochs: int = Field(10, ge=1, le=100, description="times that each step is learned from")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam")
    anneal: Literal["none", "learning_rate", "both"] = Field(
        "learning_rate",
        description="falls linearly to 0 over the training: nothing, the learning rate, or clip_range too",
    )
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a reward one step later")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="of generalised advantage estimation")
    clip_range: float = Field(0.2, gt=0, description="the ratio of probabilities gains nothing beyond 1 +- this")
    value_clip_range: float | None = Field(None, gt=0, description="the same for the change of values; null: no limit")
    normalise_advantages: bool = Field(True, description="to mean 0 and deviation 1 in each minibatch")
    entropy_coefficient: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    value_coefficient: float = Field(0.5, ge=0, description="weight of the value loss")
    max_grad_norm: float = Field(0.5, gt=0, description="longer gradients are shortened to this L2 norm")
    target_kl: float | None = Field(
        None, gt=0, description="updates of a round end when the policy moved by 1.5 times this; null: never"
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


class Ppo:
    """Proximal policy optimisation with a clipped ratio.

    loss = -mean(min(r A, clip(r, 1 - c, 1 + c) A)) + value_coefficient mean((V - R)^2) - entropy_coefficient mean(H)

    r is the ratio of an action's probability now to that when it was drawn, A its advantage, R = A + V then.

    Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equations 7 and 9; details as collected by
    Huang et al. 2022, "The 37 Implementation Details of Proximal Policy Optimization".
    """

    name: ClassVar[str] = "ppo"
    experience: ClassVar[Experience] = "on-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi-discrete", "binary", "box")
    network: ClassVar[NetworkSpec] = NetworkSpec((64, 64), "tanh")
    paper: ClassVar[str] = "https://arxiv.org/abs/1707.06347"
    Config: ClassVar[type[ControlConfig]] = PpoConfig

    def __init__(self, config: PpoConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies that it plays in."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of a rollout with its rows, both networks and the optimiser."""
        return on_policy_bytes(facts, self.config.num_steps * self.config.num_envs)

    def agent(self, world: World) -> PpoAgent:
        """An agent that has not learned yet."""
        return PpoAgent(self.config, world)


class PpoAgent:
    """PPO at work; see `Agent`.

    Args:
        config: settings.
        world: with environments.
        core: networks and collection; the usual ones when None.
    """

    parts: tuple[str, ...] = ("policy",)

    def __init__(self, config: PpoConfig, world: World, core: PpoCore | None = None) -> None:
        from galley.methods.control.flat_adam import FlatAdam
        from galley.methods.control.on_policy import OnPolicy

        self.config = config
        self._total_steps = world.facts.steps
        self._core = core or OnPolicy(world, **collection(config))
        self.decision = self._core.networks.decision
        self._adam = FlatAdam(self._core.flat, epsilon=1e-5)
        self._clip_range = config.clip_range
        self._rows: Mapping[str, Array] = {}

    def step(self, done: int) -> Outcome:
        """A rollout, and some epochs over it."""
        config, core = self.config, self._core
        left = max(0.0, 1.0 - done / max(1, self._total_steps))
        rate = config.learning_rate * (1.0 if config.anneal == "none" else left)
        self._clip_range = max(1e-8, config.clip_range * (left if config.anneal == "both" else 1.0))
        gathered = core.gather()
        self._rows = gathered.rows
        found: list[dict[str, float]] = []
        norms: list[float] = []
        for batch in self._minibatches():
            metrics = self._gradient(batch)
            if metrics is None:
                break
            norms.append(core.flat.clip(config.max_grad_norm))
            self._adam.step(rate)
            found.append(metrics)
        core.updated()
        means = {name: sum(metrics[name] for metrics in found) / len(found) for name in found[0]} if found else {}
        loss = means.pop("loss", math.nan)
        means["explained_variance"] = gathered.explained_variance
        if core.networks.log_std is not None:
            means["std"] = float(core.networks.log_std.detach().exp().mean())
        norm = sum(norms) / len(norms) if norms else math.nan
        return Outcome(gathered.steps, len(found), loss, norm, rate, means, gathered.episodes)

    def _minibatches(self) -> Any:
        """Of all epochs, with advantages as the loss takes them."""
        config = self.config
        for _ in range(config.num_epochs):
            for batch in self._core.minibatches(self._rows, config.batch_size):
                if config.normalise_advantages:
                    self._core.standardise(batch)
                yield batch

    def _gradient(self, batch: Mapping[str, Array]) -> dict[str, float] | None:
        """Write the gradient of the loss into the flat one; None when the policy has moved too far."""
        from galley.methods.control.written_out import ppo_gradient

        config, core = self.config, self._core
        highest = None if config.target_kl is None else 1.5 * config.target_kl
        if core.written is not None:
            return ppo_gradient(
                core.written,
                batch,
                clip_range=self._clip_range,
                value_clip_range=config.value_clip_range,
                entropy_coefficient=config.entropy_coefficient,
                value_coefficient=config.value_coefficient,
                highest_kl=highest,
            )
        loss = self.loss("policy", core.tensors(batch))
        metrics = {name: float(total) / count for name, (total, count) in loss.metrics.items()}
        if highest is not None and metrics["approx_kl"] > highest:
            return None
        core.flat.gradient.zero_()
        mean = loss.total / loss.denominator
        mean.backward()  # type: ignore[no-untyped-call]
        return {"loss": float(mean.detach()), **metrics}

    def sample(self) -> Mapping[str, Tensor]:
        """Rows of the last rollout: observations, actions, log_probs, values, advantages (normalised), returns."""
        rows = self._core.some(self._rows, self.config.batch_size)
        if self.config.normalise_advantages:
            self._core.standardise(rows)
        return self._core.tensors(rows)

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """See `Ppo`; a sum over rows."""
        config = self.config
        return ppo_loss(
            *self._core.judge(batch),
            clip_range=self._clip_range,
            value_clip_range=config.value_clip_range,
            entropy_coefficient=config.entropy_coefficient,
            value_coefficient=config.value_coefficient,
        )

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """All of them: one loss trains both networks."""
        return self._core.flat.parameters

    def state(self) -> Mapping[str, Any]:
        """Networks, optimiser, normalisation, generator and environments."""
        return {"core": self._core.state(), "adam": self._adam.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._core.load_state(state["core"])
        self._adam.load_state(state["adam"])


def collection(config: PpoConfig) -> dict[str, Any]:
    """The settings that collecting steps takes."""
    return {
        "num_steps": config.num_steps,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "normalise_observations": config.normalise_observations,
        "normalise_rewards": config.normalise_rewards,
        "initial_log_std": config.initial_log_std,
        "noise_steps": config.noise_steps,
    }


def ppo_loss(
    log_probs: Tensor,
    entropies: Tensor,
    values: Tensor,
    batch: Mapping[str, Tensor],
    *,
    clip_range: float,
    value_clip_range: float | None,
    entropy_coefficient: float,
    value_coefficient: float,
) -> Loss:
    """The clipped loss, as a sum over rows.

    Args:
        log_probs: of the actions, by the policy now, [B].
        entropies: of the policy now, [B].
        values: now, [B].
        batch: `log_probs` and `values` of the networks that acted, `advantages` and `returns`, [B] each.
        clip_range: see `PpoConfig`.
        value_clip_range: see `PpoConfig`.
        entropy_coefficient: see `PpoConfig`.
        value_coefficient: see `PpoConfig`.
    """
    import torch

    log_ratios = log_probs - batch["log_probs"]
    ratios = torch.exp(log_ratios)
    clipped = ratios.clamp(1 - clip_range, 1 + clip_range)
    policy_loss = -torch.minimum(ratios * batch["advantages"], clipped * batch["advantages"]).sum()
    seen = values
    if value_clip_range is not None:
        seen = batch["values"] + (values - batch["values"]).clamp(-value_clip_range, value_clip_range)
    value_loss = (seen - batch["returns"]).square().sum()
    entropy = entropies.sum()
    number = len(values)
    with torch.no_grad():
        metrics: dict[str, tuple[float, float]] = {
            "policy_loss": (policy_loss.item(), number),
            "value_loss": (value_loss.item(), number),
            "entropy": (entropy.item(), number),
            "approx_kl": ((ratios - 1 - log_ratios).sum().item(), number),
            "clip_fraction": ((clipped != ratios).sum().item(), number),
        }
    total = policy_loss - entropy_coefficient * entropy + value_coefficient * value_loss
    return Loss(total, number, metrics)


METHOD = Ppo
