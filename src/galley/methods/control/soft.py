"""Maximum-entropy learning, shared by SAC, TQC and CrossQ: a squashed Gaussian actor and its temperature.

They differ in their critics alone, which each of their files defines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from galley.methods.control.base import Loss, World
from galley.methods.control.exploration import ActionScale, Exploration, NoiseKind
from galley.methods.control.off_policy import Updates
from galley.methods.control.trained import Means, Trained
from galley.models.control.actors import SquashedActor, SquashedPass
from galley.models.control.decision import Decision, DecisionSpec
from galley.models.control.fused_mlp import products_in

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from galley.methods.control.replay import ReplayMemory

    Array = np.ndarray[Any, Any]
    Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class SoftSettings:
    """What the learner needs of a method's settings; see `SacConfig`."""

    learning_rate: float
    batch_size: int
    entropy_coefficient: float | str
    initial_entropy_coefficient: float
    target_entropy: float | None
    exploration_noise: NoiseKind
    noise_std: float
    matrix_products: str
    actor_delay: int = 1
    betas: tuple[float, float] = (0.9, 0.999)


class SoftCritic(Protocol):
    """How values are learned."""

    trained: Trained

    def row_losses(self, batch: Batch, actor: SquashedActor, coefficient: Tensor) -> Tensor:
        """The critics' loss of each row, [B], by autograd: what `learn` goes down.

        Args:
            batch: a minibatch with `next_noise`.
            actor: draws the successors' actions.
            coefficient: of the entropy, [1].
        """

    def value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """What the actor makes large, [B], by autograd."""

    def learn(self, batch: Batch, next_actions: Tensor, next_log_prob: Tensor, coefficient: Tensor) -> Tensor:
        """One update of the critics; the mean of their loss before it, a scalar."""

    def slope(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """`value` and the gradient of its sum along the actions, [B] and [B, A]."""

    def prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """A minibatch with what stands for the whole of it, so that it can be split."""

    def after_update(self) -> None:
        """Targets follow."""

    def state(self) -> Mapping[str, Any]:
        """Weights, targets, moments."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""


class SoftLearner:
    """Actor, temperature and critics at work; see `Learner`.

    Args:
        world: to act in.
        settings: of the method.
        critic: its critics.
        generator: of first weights and of noise.
    """

    def __init__(self, world: World, settings: SoftSettings, critic: SoftCritic, generator: torch.Generator) -> None:
        facts = world.facts
        self._settings, self._critic, self._generator, self._device = settings, critic, generator, world.device
        self._size = facts.actions.size
        self.native = ActionScale(facts.actions)
        assert world.environments is not None
        self.exploration = Exploration(
            settings.exploration_noise, settings.noise_std, world.environments.num_envs, self._size, seed=world.seed
        )
        self.decision = Decision(DecisionSpec(facts.observations, facts.actions, facts.network, "squashed"))
        self._actor = SquashedActor(self.decision, generator)
        self.decision.to(world.device), self._actor.to(world.device)
        self._trained = Trained(self._actor, settings.learning_rate, betas=settings.betas)
        self._actor.tie()
        activation = facts.network.activation
        rows = settings.batch_size
        self._pass = SquashedPass(self._actor, activation, 2 * rows, learned=rows)
        self._acting = SquashedPass(self._actor, activation, world.environments.num_envs)
        self._learned = settings.entropy_coefficient == "auto"
        start = settings.initial_entropy_coefficient if self._learned else float(settings.entropy_coefficient)
        self._log = nn.ParameterList([torch.full((1,), math.log(max(start, 1e-30)), device=world.device)])
        self._fixed = torch.full((1,), 0.0 if self._learned else start, device=world.device)
        self._temperature = Trained(self._log, settings.learning_rate, betas=settings.betas)
        entropy = settings.target_entropy
        self._target_entropy = float(-self._size) if entropy is None else entropy
        self.parts = (*(("temperature",) if self._learned else ()), "critic", "actor")
        self._count = 0
        self._last_actor: dict[str, float] = {}

    def act(self, observations: Array, *, random: bool) -> Array:
        """Drawn from the policy."""
        if random:
            return self.exploration.uniform()
        with torch.no_grad():
            noise = torch.from_numpy(self.exploration.standard_normal()).to(self._device)
            actions, _ = self._acting.draw(torch.from_numpy(observations).to(self._device), noise)
        return self.exploration.added(actions.cpu().numpy())

    def ended(self, over: Array) -> None:
        """New episodes."""
        self.exploration.ended(over)

    def _minibatch(self, memory: ReplayMemory) -> dict[str, Tensor]:
        rows = memory.sample(self._settings.batch_size)
        shape = (2, self._settings.batch_size, self._size)
        noise = torch.randn(shape, generator=self._generator)
        rows |= {"noise": noise[0], "next_noise": noise[1]}
        return {name: column.to(self._device) for name, column in rows.items()}

    def sample(self, memory: ReplayMemory) -> dict[str, Tensor]:
        """A minibatch with noise for the actions at observations and successors."""
        return self._critic.prepare(self._minibatch(memory))

    def coefficient(self) -> Tensor:
        """Weight of the entropy, [1]."""
        return self._log[0].detach().exp() if self._learned else self._fixed

    def loss(self, part: str, batch: Batch) -> Loss:
        """Sum over rows of the critics' loss; of alpha log pi - Q; of -log alpha (log pi + target entropy)."""
        rows = len(batch["rewards"])
        if part == "critic":
            return Loss(self._critic.row_losses(batch, self._actor, self.coefficient()).sum(), rows)
        actions, log_prob = self._actor(batch["observations"], batch["noise"])
        if part == "actor":
            value = self._critic.value(batch["observations"], actions)
            return Loss((self.coefficient() * log_prob - value).sum(), rows)
        return Loss(-(self._log[0] * (log_prob.detach() + self._target_entropy)).sum(), rows)

    def update(self, memory: ReplayMemory, count: int) -> Updates:
        """Critics, temperature and actor, once each from every minibatch (the latter two every `actor_delay`-th)."""
        critics = Means("critic_loss", "grad_norm")
        actors = Means("actor_loss", "q_mean", "entropy", "entropy_coefficient")
        with products_in(self._settings.matrix_products), torch.no_grad():
            for _ in range(count):
                self._count += 1
                self._update(self._minibatch(memory), critics, actors)
        found = critics.read()
        norm = found.pop("grad_norm")
        self._last_actor = actors.read() or self._last_actor
        metrics = {**found, **self._last_actor}
        return Updates(found["critic_loss"], norm, self._settings.learning_rate, metrics)

    def _update(self, batch: Batch, critics: Means, actors: Means) -> None:
        coefficient, rows = self.coefficient(), len(batch["rewards"])
        # the actor moves last, so both draws can be one
        drawn, log_probs = self._pass.draw(
            torch.cat([batch["observations"], batch["successors"]]), torch.cat([batch["noise"], batch["next_noise"]])
        )
        loss = self._critic.learn(batch, drawn[rows:], log_probs[rows:], coefficient)
        critics.add(loss, self._critic.trained.grad_norm())
        if self._count % self._settings.actor_delay == 0:
            actions, log_prob = drawn[:rows], log_probs[:rows]
            entropy = -log_prob.mean()
            if self._learned:
                self._temperature.flat.gradient.copy_(entropy - self._target_entropy)
                self._temperature.step()
            value, slope = self._critic.slope(batch["observations"], actions)
            self._pass.learn(slope / -rows, coefficient / rows)
            self._trained.step()
            mean = value.mean()
            actors.add(-coefficient * entropy - mean, mean, entropy, coefficient)
        self._critic.after_update()

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of one part."""
        trained = {"critic": self._critic.trained, "actor": self._trained, "temperature": self._temperature}[part]
        return trained.flat.parameters

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        return {
            "actor": self._trained.state(),
            "temperature": self._temperature.state(),
            "critic": self._critic.state(),
            "exploration": self.exploration.state(),
            "generator": self._generator.get_state(),
            "count": self._count,
            "last_actor": dict(self._last_actor),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._trained.load_state(state["actor"])
        self._temperature.load_state(state["temperature"])
        self._critic.load_state(state["critic"])
        self.exploration.load_state(state["exploration"])
        self._generator.set_state(state["generator"])
        self._count, self._last_actor = state["count"], dict(state["last_actor"])
