"""Conservative Q-learning for choices: actions that nobody took are not believed to be good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from galley.methods.control.base import ControlConfig, Experience, Loss, Outcome, World, WorldFacts
from galley.methods.control.sizes import adam_bytes, decision_numbers
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.environments.layout import ActionKind


class CqlConfig(ControlConfig):
    """Settings of conservative Q-learning."""

    batch_size: int = Field(256, ge=1, description="steps of a minibatch")
    learning_rate: float = Field(3e-4, gt=0, le=1, description="of Adam")
    gamma: float = Field(0.99, ge=0, le=1, description="discount")
    conservative_weight: float = Field(
        1.0, ge=0, le=1000, description="alpha: of the term that lowers actions nobody took; 0 is DQN on stored steps"
    )
    polyak: float = Field(0.005, gt=0, le=1, description="share of the way that the target moves at each update")
    normalise_observations: bool = Field(
        True, description="shift and scale vector observations by mean and deviation of the stored ones"
    )


class ConservativeQLearning:
    """Double DQN on stored steps, with a penalty on the values of all actions but those that were taken."""

    name: ClassVar[str] = "cql"
    experience: ClassVar[Experience] = "offline"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    network: ClassVar[NetworkSpec] = NetworkSpec((256, 256), "relu")
    paper: ClassVar[str] = "https://arxiv.org/abs/2006.04779"
    Config: ClassVar[type[ControlConfig]] = CqlConfig
    num_envs = 0

    def __init__(self, config: CqlConfig) -> None:
        self.config = config

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of the network, its target and its optimiser; the stored episodes come to it."""
        numbers = decision_numbers(facts, facts.actions.num_choices)
        return {"networks": 8 * numbers, "optimizer": adam_bytes(numbers)}

    def agent(self, world: World) -> ConservativeQ:
        """A network that has not learned yet."""
        return ConservativeQ(self.config, world)


class ConservativeQ:
    """Conservative Q-learning at work; see `Agent`."""

    parts: tuple[str, ...] = ("critic",)

    def __init__(self, config: CqlConfig, world: World) -> None:
        from galley.methods.control import offline
        from galley.models.control.decision import Decision, DecisionSpec

        facts, episodes = world.facts, offline.stored(world)
        self.config = config
        normalise = config.normalise_observations and facts.observations.is_vector
        spec = DecisionSpec(facts.observations, facts.actions, facts.network, "values", normalise=normalise)
        self.decision = offline.seeded(world.seed, lambda: Decision(spec)).to(world.device)
        offline.normalise_by(self.decision, episodes)
        self._target = offline.frozen_copy(self.decision)
        rows = offline.rows_of(episodes, gamma=config.gamma, reward_scale=1.0, device=world.device)
        self._batches = offline.Minibatches(rows, config.batch_size, world.seed)
        self._descent = offline.Descent(self.parameters("critic"), config.learning_rate)

    def step(self, done: int) -> Outcome:
        """Some updates; there is no schedule, so that `done` does not matter."""
        from galley.methods.control.offline import UPDATES
        from galley.models.control.mlp import flat_copy

        for _ in range(UPDATES):
            self._descent.update(self.loss("critic", self._batches.draw()))
            flat_copy(self.decision, self._target, self.config.polyak)
        means = self._descent.means()
        loss, norm = means.pop("loss"), means.pop("grad_norm")
        return Outcome(UPDATES, UPDATES, loss, norm, self.config.learning_rate, means)

    def sample(self) -> Mapping[str, Tensor]:
        """Observations and successors [B, D], actions, rewards and discounts [B]."""
        return self._batches.draw()

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """Equation 4 of the paper, CQL(H) with a uniform prior, whose second half is DQN's loss; summed over rows."""
        import torch
        from torch.nn.functional import smooth_l1_loss

        values_BC = self.decision.outputs(self.decision.normalised(batch["observations"]))
        taken = values_BC.gather(1, batch["actions"][:, None])[:, 0]
        with torch.no_grad():
            seen = self.decision.normalised(batch["successors"])
            best = self.decision.outputs(seen).argmax(dim=1, keepdim=True)
            following = self._target.outputs(seen).gather(1, best)[:, 0]
            wanted = batch["rewards"] + batch["discounts"] * following
        errors = smooth_l1_loss(taken, wanted, reduction="none")
        gap = torch.logsumexp(values_BC, dim=1) - taken
        rows = len(taken)
        metrics: dict[str, Any] = {
            "td_loss": (errors.detach().sum(), rows),
            "conservative_gap": (gap.detach().sum(), rows),
            "q_mean": (taken.detach().sum(), rows),
            "q_max": (values_BC.detach().amax(dim=1).sum(), rows),
        }
        return Loss((errors + self.config.conservative_weight * gap).sum(), rows, metrics)

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of the network."""
        return list(self.decision.parameters())

    def state(self) -> Mapping[str, Any]:
        """Weights, optimiser and generator."""
        from galley.methods.control import offline

        return {
            "weights": offline.weights_state({"decision": self.decision, "target": self._target}),
            "optimizer": self._descent.state(),
            "batches": self._batches.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        from galley.methods.control import offline

        offline.load_weights({"decision": self.decision, "target": self._target}, state["weights"])
        self._descent.load_state(state["optimizer"])
        self._batches.load_state(state["batches"])


METHOD = ConservativeQLearning
