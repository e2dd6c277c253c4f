"""Behaviour cloning: supervised learning of the actions in stored episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, Loss, Outcome, World, WorldFacts
from galley.methods.control.sizes import adam_bytes, decision_numbers
from galley.models.control.spec import NetworkSpec

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.environments.layout import ActionKind


class BcConfig(ControlConfig):
    """Settings of behaviour cloning."""

    batch_size: int = Field(256, ge=1, description="steps of a minibatch")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam")
    weight_decay: float = Field(0.0, ge=0, le=10, description="decoupled decay of weights, as in AdamW")
    normalise_observations: bool = Field(
        True, description="shift and scale vector observations by mean and deviation of the stored ones"
    )
    action_loss: Literal["mse", "likelihood"] = Field(
        "mse", description="for actions that are numbers: squared error, or likelihood of a Gaussian with learned width"
    )


class BehaviourCloning:
    """The policy does what was done."""

    name: ClassVar[str] = "bc"
    experience: ClassVar[Experience] = "offline"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi-discrete", "binary", "box")
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = (
        "https://proceedings.neurips.cc/paper/1988/hash/812b4ba287f5ee0bc9d43bbf5bbe87fb-Abstract.html"
    )
    Config: ClassVar[type[ControlConfig]] = BcConfig
    num_envs = 0

    def __init__(self, config: BcConfig) -> None:
        self.config = config

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of the network and its optimiser; the stored episodes come to it, as large as their file unpacked."""
        numbers = decision_numbers(facts, facts.actions.num_choices)
        return {"networks": 4 * numbers, "optimizer": adam_bytes(numbers)}

    def agent(self, world: World) -> Cloning:
        """A policy that has not learned yet."""
        return Cloning(self.config, world)


class Cloning:
    """Behaviour cloning at work; see `Agent`."""

    parts: tuple[str, ...] = ("policy",)

    def __init__(self, config: BcConfig, world: World) -> None:
        import torch
        from torch import nn

        from galley.methods.control import offline
        from galley.models.control.decision import Decision, DecisionSpec

        facts, episodes = world.facts, offline.stored(world)
        self._box = facts.actions.kind == "box"
        normalise = config.normalise_observations and facts.observations.is_vector
        spec = DecisionSpec(
            facts.observations,
            facts.actions,
            facts.network,
            "mean" if self._box else "logits",
            normalise=normalise,
        )
        self.decision = offline.seeded(world.seed, lambda: Decision(spec)).to(world.device)
        offline.normalise_by(self.decision, episodes)
        self._log_std: nn.Parameter | None = None
        if self._box and config.action_loss == "likelihood":
            self._log_std = nn.Parameter(torch.zeros(facts.actions.size, device=world.device))
        rows = offline.rows_of(episodes, gamma=1.0, reward_scale=1.0, device=world.device)
        seen = {name: rows[name] for name in ("observations", "actions")}
        self._batches = offline.Minibatches(seen, config.batch_size, world.seed)
        self._descent = offline.Descent(self.parameters("policy"), config.learning_rate, config.weight_decay)

    def step(self, done: int) -> Outcome:
        """Some updates; there is no schedule, so that `done` does not matter."""
        from galley.methods.control.offline import UPDATES

        for _ in range(UPDATES):
            self._descent.update(self.loss("policy", self._batches.draw()))
        means = self._descent.means()
        loss, norm = means.pop("loss"), means.pop("grad_norm")
        return Outcome(UPDATES, UPDATES, loss, norm, self._descent.learning_rate, means)

    def sample(self) -> Mapping[str, Tensor]:
        """Observations [B, D] and actions [B] or [B, A]."""
        return self._batches.draw()

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """-log p(action), or the squared error; summed over rows."""
        outputs = self.decision.outputs(self.decision.normalised(batch["observations"]))
        total, metrics = self._numbers(outputs, batch["actions"]) if self._box else self._choices(outputs, batch)
        return Loss(total, len(outputs), metrics)

    def _choices(self, outputs_BC: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
        import torch
        from torch.nn.functional import cross_entropy

        actions_BA = batch["actions"].reshape(len(outputs_BC), -1)
        parts = torch.split(outputs_BC, list(self.decision.spec.actions.sizes), dim=1)
        losses = [cross_entropy(part, actions_BA[:, i], reduction="sum") for i, part in enumerate(parts)]
        hits = sum((part.argmax(1) == actions_BA[:, i]).sum() for i, part in enumerate(parts))
        return torch.stack(losses).sum(), {"accuracy": (hits, actions_BA.numel())}

    def _numbers(self, means_BA: Tensor, actions_BA: Tensor) -> tuple[Tensor, dict[str, Any]]:
        errors_BA = actions_BA - means_BA
        metrics: dict[str, Any] = {"action_error": (errors_BA.detach().abs().sum(), errors_BA.numel())}
        if self._log_std is None:
            return errors_BA.square().mean(dim=1).sum(), metrics
        metrics["std"] = (self._log_std.detach().exp().mean(), 1)
        densities_BA = -0.5 * (errors_BA * (-self._log_std).exp()).square() - self._log_std - LOG_SQRT_2PI
        return -densities_BA.sum(), metrics

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of the policy."""
        return [*self.decision.parameters(), *([] if self._log_std is None else [self._log_std])]

    def state(self) -> Mapping[str, Any]:
        """Weights, optimiser and generator."""
        from galley.methods.control import offline

        return {
            "weights": offline.weights_state({"decision": self.decision}),
            "log_std": None if self._log_std is None else self._log_std.detach().clone(),
            "optimizer": self._descent.state(),
            "batches": self._batches.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        from galley.methods.control import offline

        offline.load_weights({"decision": self.decision}, state["weights"])
        if self._log_std is not None:
            self._log_std.data.copy_(state["log_std"])
        self._descent.load_state(state["optimizer"])
        self._batches.load_state(state["batches"])


METHOD = BehaviourCloning
