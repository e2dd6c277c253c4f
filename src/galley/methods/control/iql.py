"""Implicit Q-learning: better than what is stored, without ever asking for the value of an action that nobody took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, Loss, Outcome, World, WorldFacts
from galley.methods.control.sizes import adam_bytes, decision_numbers
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.environments.layout import ActionKind

_LOG_STD = (-5.0, 2.0)
"""Bounds of the actor's width, those of the paper's code."""
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class IqlConfig(ControlConfig):
    """Settings of implicit Q-learning."""

    batch_size: int = Field(256, ge=1, description="steps of a minibatch")
    learning_rate: float = Field(3e-4, gt=0, le=1, description="of all three optimisers")
    anneal_actor: bool = Field(True, description="the actor's learning rate falls to 0 along a cosine")
    gamma: float = Field(0.99, ge=0, le=1, description="discount")
    expectile: float = Field(0.7, gt=0, lt=1, description="of the values of stored actions; 0.5 is their mean")
    advantage_scale: float = Field(
        3.0, ge=0, le=1000, description="beta: how much more actions count that are better than the rest; 0 imitates"
    )
    weight_limit: float = Field(100.0, ge=1, description="largest weight of a step in the actor's loss")
    polyak: float = Field(0.005, gt=0, le=1, description="share of the way that target critics move at each update")
    scale_rewards: bool = Field(
        True, description="divide rewards by the range of the stored returns and multiply them with 1000"
    )
    normalise_observations: bool = Field(
        True, description="shift and scale vector observations by mean and deviation of the stored ones"
    )


class ImplicitQLearning:
    """An upper expectile stands for the best action; the policy imitates what is better than it expected."""

    name: ClassVar[str] = "iql"
    experience: ClassVar[Experience] = "offline"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "box")
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/2110.06169"
    Config: ClassVar[type[ControlConfig]] = IqlConfig
    num_envs = 0

    def __init__(self, config: IqlConfig) -> None:
        self.config = config

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of actor, value, two critics and their targets; the stored episodes come to it."""
        choices = facts.actions.num_choices
        critic = (
            decision_numbers(facts, 1, choices) if facts.actions.kind == "box" else decision_numbers(facts, choices)
        )
        trained = decision_numbers(facts, choices) + decision_numbers(facts, 1) + 2 * critic
        return {"networks": 4 * (trained + 2 * critic), "optimizer": adam_bytes(trained)}

    def agent(self, world: World) -> ImplicitQ:
        """Networks that have not learned yet."""
        return ImplicitQ(self.config, world)


class ImplicitQ:
    """Implicit Q-learning at work; see `Agent`."""

    parts: tuple[str, ...] = ("value", "actor", "critic")

    def __init__(self, config: IqlConfig, world: World) -> None:
        import torch
        from torch import nn

        from galley.methods.control import offline
        from galley.models.control.action_values import ActionValues, StateValue
        from galley.models.control.decision import Decision, DecisionSpec

        facts, episodes = world.facts, offline.stored(world)
        observations, actions = facts.observations, facts.actions
        self.config = config
        self._steps = facts.steps
        self._bounded = actions.kind == "box" and all(math.isfinite(x) for x in (*actions.low, *actions.high))
        rule: Any = "logits" if actions.kind == "discrete" else "squashed" if self._bounded else "mean"
        normalise = config.normalise_observations and observations.is_vector
        spec = DecisionSpec(observations, actions, facts.network, rule, normalise=normalise)
        generator = torch.Generator().manual_seed(world.seed)
        self.decision, self._value, self._critics = offline.seeded(
            world.seed,
            lambda: (
                Decision(spec).to(world.device),
                StateValue(observations, facts.network).to(world.device),
                ActionValues(observations, actions, facts.network, critics=2, generator=generator).to(world.device),
            ),
        )
        self._targets = offline.frozen_copy(self._critics)
        offline.normalise_by(self.decision, episodes)
        self._log_std = nn.Parameter(torch.zeros(actions.size if actions.kind == "box" else 0, device=world.device))
        scale = offline.reward_scale(episodes) if config.scale_rewards else 1.0
        rows = offline.rows_of(episodes, gamma=config.gamma, reward_scale=scale, device=world.device)
        self._batches = offline.Minibatches(rows, config.batch_size, world.seed)
        self._descents = {part: offline.Descent(self.parameters(part), config.learning_rate) for part in self.parts}

    def step(self, done: int) -> Outcome:
        """Some updates; the actor's learning rate follows how much is done."""
        from galley.methods.control.offline import UPDATES
        from galley.models.control.mlp import flat_copy

        rate = 0.5 * (1 + math.cos(math.pi * min(1.0, done / self._steps))) if self.config.anneal_actor else 1.0
        for _ in range(UPDATES):
            batch = self._batches.draw()
            for part, descent in self._descents.items():
                descent.update(self.loss(part, batch), rate if part == "actor" else 1.0)
            flat_copy(self._critics, self._targets, self.config.polyak)
        metrics: dict[str, float] = {}
        norms: dict[str, float] = {}
        for part, descent in self._descents.items():
            means = descent.means()
            metrics[f"{part}_loss"], norms[part] = means.pop("loss"), means.pop("grad_norm")
            metrics |= means
        return Outcome(
            UPDATES,
            UPDATES,
            metrics["actor_loss"],
            norms["actor"],
            self.config.learning_rate * rate,
            metrics,
        )

    def sample(self) -> Mapping[str, Tensor]:
        """Observations and successors [B, D], actions [B] or [B, A], rewards and discounts [B]."""
        return self._batches.draw()

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """Equations 5 (value), 6 (critic) and 7 (actor) of the paper, summed over rows."""
        import torch

        seen, actions = self.decision.normalised(batch["observations"]), batch["actions"]
        rows = len(seen)
        if part == "critic":
            with torch.no_grad():
                following = self._value(self.decision.normalised(batch["successors"]))
                wanted = batch["rewards"] + batch["discounts"] * following
            values_KB = self._critics.of(seen, actions)
            metrics: dict[str, Any] = {"q_mean": (values_KB.detach().mean(0).sum(), rows)}
            return Loss((values_KB - wanted).square().sum(), rows, metrics)
        with torch.no_grad():
            judged = self._targets.of(seen, actions).min(dim=0).values
        if part == "value":
            ahead = judged - self._value(seen)
            weights = (self.config.expectile - (ahead.detach() < 0).float()).abs()
            return Loss((weights * ahead.square()).sum(), rows, {"advantage": (ahead.detach().sum(), rows)})
        with torch.no_grad():
            ahead = self.config.advantage_scale * (judged - self._value(seen))
            weights = ahead.exp().clamp(max=self.config.weight_limit)
        return Loss(-(weights * self._log_probability(seen, actions)).sum(), rows, {"weight": (weights.sum(), rows)})

    def _log_probability(self, seen_BD: Tensor, actions: Tensor) -> Tensor:
        import torch

        outputs = self.decision.outputs(seen_BD)
        if self.decision.spec.actions.kind == "discrete":
            return torch.log_softmax(outputs, dim=1).gather(1, actions[:, None])[:, 0]
        means = torch.tanh(outputs) if self._bounded else outputs
        log_std = self._log_std.clamp(*_LOG_STD)
        errors = (self._critics.unit(actions) - means) * (-log_std).exp()
        return (-0.5 * errors.square() - log_std - _LOG_SQRT_2PI).sum(dim=1)

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of one of the networks."""
        if part == "actor":
            return [*self.decision.parameters(), *([self._log_std] if len(self._log_std) else [])]
        return list((self._value if part == "value" else self._critics).parameters())

    @property
    def _modules(self) -> dict[str, nn.Module]:
        return {
            "decision": self.decision,
            "value": self._value,
            "critics": self._critics,
            "targets": self._targets,
        }

    def state(self) -> Mapping[str, Any]:
        """Weights, optimisers and generator."""
        from galley.methods.control import offline

        return {
            "weights": offline.weights_state(self._modules),
            "log_std": self._log_std.detach().clone(),
            "optimizers": {part: descent.state() for part, descent in self._descents.items()},
            "batches": self._batches.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        from galley.methods.control import offline

        offline.load_weights(self._modules, state["weights"])
        self._log_std.data.copy_(state["log_std"])
        for part, descent in self._descents.items():
            descent.load_state(state["optimizers"][part])
        self._batches.load_state(state["batches"])


METHOD = ImplicitQLearning
