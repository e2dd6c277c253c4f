"""Deep Q-learning: double, dueling, n-step, prioritised and quantile by options."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from galley.base.generators import generator_state, load_generator
from galley.methods.control.base import ControlConfig, Experience, Loss, Outcome, World, WorldFacts
from galley.methods.control.sizes import adam_bytes, decision_numbers
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from galley.data.environments import Episode
    from galley.data.environments.layout import ActionKind

    Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 64 * 2**20
"""Of minibatches that are drawn at once."""


class DqnConfig(ControlConfig):
    """Settings of deep Q-learning. Steps are environment steps over all copies."""

    num_envs: int = Field(1, ge=1, le=4096, description="copies of the environment")
    learning_rate: float = Field(1e-4, gt=0, le=1, description="of Adam")
    batch_size: int = Field(32, ge=1, description="transitions of a minibatch")
    buffer_size: int = Field(100_000, ge=1, description="transitions in the replay memory")
    learning_starts: int = Field(1000, ge=0, description="steps of random actions before the first update")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of one step")
    train_frequency: int = Field(4, ge=1, description="steps between updates")
    gradient_steps: int = Field(1, ge=1, description="updates after each `train_frequency` steps")
    target_update_interval: int = Field(1000, ge=1, description="steps between updates of the target network")
    target_share: float = Field(
        1.0, gt=0, le=1, description="how far the target goes to the network then (Polyak averaging); 1 copies"
    )
    exploration_fraction: float = Field(
        0.1, gt=0, le=1, description="share of the training in which epsilon falls from 1 to `final_exploration`"
    )
    final_exploration: float = Field(0.05, ge=0, le=1, description="share of random actions from then on")
    max_grad_norm: float = Field(10.0, gt=0, description="L2 norm to which gradients are clipped")
    double: bool = Field(True, description="the network chooses the successor's action, the target network values it")
    dueling: bool = Field(False, description="state value and advantages in streams of their own")
    n_step: int = Field(1, ge=1, le=100, description="rewards that are summed up before the bootstrap")
    priority_exponent: float = Field(
        0.0, ge=0, le=1, description="alpha of prioritised replay, in proportion to |error|^alpha; 0 samples uniformly"
    )
    importance_exponent: float = Field(
        0.4, ge=0, le=1, description="beta of its weights at the start; it rises to 1 over the training"
    )
    quantiles: int = Field(0, ge=0, le=1000, description="of each action's return (QR-DQN); 0 learns its mean alone")


class DeepQLearning:
    """Values of actions, learned from a replay memory; the best one is taken."""

    name: ClassVar[str] = "dqn"
    experience: ClassVar[Experience] = "off-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    network: ClassVar[NetworkSpec] = NetworkSpec((64, 64), "relu")
    paper: ClassVar[str] = "https://www.nature.com/articles/nature14236"
    Config: ClassVar[type[ControlConfig]] = DqnConfig

    def __init__(self, config: DqnConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies that it acts in."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Of the memory, both networks and Adam."""
        from galley.methods.control.replay import num_bytes

        config, choices = self.config, facts.actions.num_choices
        per_choice = max(1, config.quantiles)
        numbers = decision_numbers(facts, choices * per_choice)
        if config.dueling:
            alone = decision_numbers(facts, per_choice)
            numbers += alone - _encoder_numbers(facts)
        replay = num_bytes(
            config.buffer_size,
            config.num_envs,
            facts.observations,
            facts.actions,
            n_step=config.n_step,
            priority_exponent=config.priority_exponent,
        )
        return {"replay": replay, "networks": 8 * numbers, "optimizer": adam_bytes(numbers)}

    def agent(self, world: World) -> QAgent:
        """A network that has not learned yet, with an empty memory."""
        return QAgent(self.config, world)


class QAgent:
    """Deep Q-learning at work; see `Agent`.

    A round is `train_frequency` environment steps, rounded up to a step of every copy (what was rounded up counts for
    the next one), and the updates that they are worth.
    """

    parts: tuple[str, ...] = ("q",)

    def __init__(self, config: DqnConfig, world: World) -> None:
        import numpy as np
        import torch

        from galley.methods.control.flat_adam import FlatAdam, FlatParameters
        from galley.methods.control.replay import ReplayMemory
        from galley.methods.control.written_q import WrittenQ, can_be_written_out
        from galley.models.control.decision import Decision, DecisionSpec
        from galley.models.control.mlp import uniform

        assert world.environments is not None
        facts = self._facts = world.facts
        self._config, self._device = config, world.device
        self._environments = world.environments
        spec = DecisionSpec(
            facts.observations,
            facts.actions,
            facts.network,
            "quantiles" if config.quantiles else "values",
            quantiles=max(1, config.quantiles),
            dueling=config.dueling,
        )
        with torch.random.fork_rng(devices=[]):  # layers draw weights when they are made
            self.decision = Decision(spec)
        uniform(self.decision, torch.Generator().manual_seed(world.seed))
        self.decision.to(world.device)
        self._target = copy.deepcopy(self.decision).requires_grad_(False)
        self._flat, self._target_flat = (FlatParameters(net.parameters()) for net in (self.decision, self._target))
        self._adam = FlatAdam(self._flat)
        self._written: WrittenQ | None = None
        if world.device == "cpu" and can_be_written_out(self.decision):
            self._written = WrittenQ(self.decision, self._target, self._flat, config.batch_size, double=config.double)
        self._memory = ReplayMemory(
            config.buffer_size,
            config.num_envs,
            facts.observations,
            facts.actions,
            gamma=config.gamma,
            n_step=config.n_step,
            priority_exponent=config.priority_exponent,
            seed=world.seed,
        )
        self._random = np.random.default_rng([world.seed, 1])
        self._now = self._environments.reset(world.seed)
        self._steps = 0
        self._owed = 0
        self._since_target = 0

    # --- acting

    @property
    def epsilon(self) -> float:
        """Share of random actions now."""
        progress = self._steps / max(1, self._facts.steps) / self._config.exploration_fraction
        return 1.0 + min(1.0, progress) * (self._config.final_exploration - 1.0)

    def step(self, done: int) -> Outcome:
        """One round."""
        import numpy as np

        config, before = self._config, self._steps
        episodes: list[Episode] = []
        while self._owed < config.train_frequency:
            actions = self._act()
            step = self._environments.step(actions)
            self._memory.add(self._now, actions, step)
            self._now = step.observations
            played = len(actions) if step.idle is None else len(actions) - int(np.count_nonzero(step.idle))
            self._steps += played
            self._owed += played
            if step.episodes:
                episodes.extend(step.episodes)
        self._move_target(self._steps - before)
        times, self._owed = divmod(self._owed, config.train_frequency)
        ready = self._steps > config.learning_starts and len(self._memory)
        count = times * config.gradient_steps if ready else 0
        metrics = self._learn(count) if count else {}
        loss, norm = metrics.pop("loss", float("nan")), metrics.pop("grad_norm", float("nan"))
        metrics["epsilon"] = self.epsilon
        return Outcome(self._steps - before, count, loss, norm, config.learning_rate, metrics, episodes)

    def _act(self) -> Array:
        import numpy as np

        copies, choices = len(self._now), self._facts.actions.num_choices
        if self._steps < self._config.learning_starts:
            return self._random.integers(0, choices, copies)
        explores = self._random.random(copies) < self.epsilon
        if explores.all():
            return self._random.integers(0, choices, copies)
        values_NC = self._outputs(self._now).reshape(copies, choices, -1)
        best = (values_NC.mean(2) if values_NC.shape[2] > 1 else values_NC[:, :, 0]).argmax(1)
        if explores.any():
            best = np.where(explores, self._random.integers(0, choices, copies), best)
        actions: Array = best
        return actions

    def _outputs(self, observations: Array) -> Array:
        import torch

        if self._written is not None:
            return self._written.outputs(observations)
        with torch.inference_mode():
            found: Array = self.decision.outputs(torch.from_numpy(observations).to(self._device)).cpu().numpy()
        return found

    def _move_target(self, steps: int) -> None:
        """What `steps` steps are worth; the network did not change in between, so that one move does for several."""
        times, self._since_target = divmod(self._since_target + steps, self._config.target_update_interval)
        if times:
            share = 1.0 - (1.0 - self._config.target_share) ** times
            self._target_flat.data.lerp_(self._flat.data, share)

    # --- learning

    @property
    def _beta(self) -> float:
        start = self._config.importance_exponent
        return start + min(1.0, self._steps / max(1, self._facts.steps)) * (1.0 - start)

    def _learn(self, count: int) -> dict[str, float]:
        """`count` updates; the target network stays as it is, so that many minibatches are prepared at once."""
        import torch

        row = 2 * self._facts.observations.size * (1 if self._facts.observations.dtype == "uint8" else 4)
        most = max(1, _BLOCK_BYTES // (row * self._config.batch_size))
        if self._config.priority_exponent:
            most = 1  # priorities change with every update
        sums = torch.zeros(4, device=self._device)
        norms = 0.0
        for start in range(0, count, most):
            number = min(most, count - start)
            many = self._memory.sample_many(self._config.batch_size, number, self._beta)
            if self._device != "cpu":
                many = {name: rows.to(self._device) for name, rows in many.items()}
            norms += self._written_updates(many, sums) if self._written is not None else self._updates(many, sums)
        means = (sums / count).tolist()
        return dict(zip(("loss", "q_mean", "td_error"), means, strict=False)) | {"grad_norm": norms / count}

    def _updates(self, many: Mapping[str, Tensor], sums: Tensor) -> float:
        """Through autograd."""
        norms = 0.0
        for number in range(len(many["rewards"])):
            batch = {name: rows[number] for name, rows in many.items()}
            values_BQ, targets_BQ = self._values(batch), self._targets(batch)
            loss = (self._losses(values_BQ, targets_BQ) * batch["weights"]).mean()
            self._flat.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            norms += self._flat.clip(self._config.max_grad_norm)
            self._adam.step(self._config.learning_rate)
            self._note(batch, values_BQ.detach(), targets_BQ, sums)
        return norms

    def _written_updates(self, many: Mapping[str, Tensor], sums: Tensor) -> float:
        """The same, written out."""
        import torch

        written = self._written
        assert written is not None
        norms, found = 0.0, []
        valued = written.target_outputs(many["successors"])
        targets = None if self._config.double else written.targets(many, valued)
        wanted = []
        for number, rows in enumerate(zip(*(column.unbind() for column in many.values()), strict=True)):
            batch = dict(zip(many, rows, strict=True))
            targets_BQ = written.targets(batch, valued[number]) if targets is None else targets[number]
            found.append(written.gradient(batch, targets_BQ))
            wanted.append(targets_BQ)
            norms += self._flat.clip(self._config.max_grad_norm)
            self._adam.step(self._config.learning_rate)
        flat = {name: many[name].flatten(0, 1) for name in ("weights", "indices")}
        with torch.no_grad():
            self._note(flat, torch.cat(found), torch.cat(wanted), sums, updates=len(found))
        return norms

    def _note(
        self, batch: Mapping[str, Tensor], values_BQ: Tensor, targets_BQ: Tensor, sums: Tensor, updates: int = 1
    ) -> None:
        """Add to the sums of metrics, and give the rows their new priorities."""
        errors_B = targets_BQ.mean(1) - values_BQ.mean(1)
        loss = (self._losses(values_BQ, targets_BQ) * batch["weights"]).mean()
        sums[0] += loss.detach() * updates
        sums[1] += values_BQ.mean() * updates
        sums[2] += errors_B.abs().mean() * updates
        if self._config.priority_exponent:
            self._memory.update_priorities(batch["indices"], errors_B)

    def sample(self) -> Mapping[str, Tensor]:
        """A minibatch."""
        batch = self._memory.sample(self._config.batch_size, self._beta)
        return {name: rows.to(self._device) for name, rows in batch.items()}

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """Huber loss of r + discount * max Q_target(successor), times the importance weight; summed over rows."""
        losses_B = self._losses(self._values(batch), self._targets(batch))
        return Loss((losses_B * batch["weights"]).sum(), len(losses_B))

    def _values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Of the actions that were taken, [B, Q]."""
        outputs_BCQ = self._split(self.decision.outputs(batch["observations"]))
        return _of_choice(outputs_BCQ, batch["actions"])

    def _targets(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What they should be, [B, Q]."""
        import torch

        with torch.no_grad():
            valued_BCQ = self._split(self._target.outputs(batch["successors"]))
            judged = self._split(self.decision.outputs(batch["successors"])) if self._config.double else valued_BCQ
            best_BQ = _of_choice(valued_BCQ, judged.mean(2).argmax(1))
            return batch["rewards"][:, None] + batch["discounts"][:, None] * best_BQ

    def _losses(self, values_BQ: Tensor, targets_BT: Tensor) -> Tensor:
        """Of each row, [B]: Huber, or quantile Huber (Dabney et al. 2018, equation 10)."""
        import torch
        from torch.nn.functional import smooth_l1_loss

        if not self._config.quantiles:
            return smooth_l1_loss(values_BQ, targets_BT, reduction="none")[:, 0]
        number = values_BQ.shape[1]
        fractions_Q = (torch.arange(number, device=values_BQ.device) + 0.5) / number
        errors_BTQ = targets_BT[:, :, None] - values_BQ[:, None]
        huber_BTQ = smooth_l1_loss(errors_BTQ, torch.zeros_like(errors_BTQ), reduction="none")
        below_BTQ = (errors_BTQ.detach() < 0).float()
        return ((fractions_Q - below_BTQ).abs() * huber_BTQ).mean(1).sum(1)

    def _split(self, outputs_BO: Tensor) -> Tensor:
        return outputs_BO.reshape(len(outputs_BO), self._facts.actions.num_choices, -1)

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """Of the network; the target follows it."""
        return list(self.decision.parameters())

    # --- storing

    def state(self) -> Mapping[str, Any]:
        """Everything; the memory's tensors are its own."""
        return {
            "weights": self._flat.data.clone(),
            "target": self._target_flat.data.clone(),
            "adam": self._adam.state(),
            "memory": self._memory.state(),
            "environments": self._environments.state(),
            "random": generator_state(self._random),
            "steps": self._steps,
            "owed": self._owed,
            "since_target": self._since_target,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue."""
        self._flat.data.copy_(state["weights"])
        self._target_flat.data.copy_(state["target"])
        self._adam.load_state(state["adam"])
        self._memory.load_state(state["memory"])
        self._now = self._environments.load_state(state["environments"])
        load_generator(self._random, state["random"])
        self._steps, self._owed = state["steps"], state["owed"]
        self._since_target = state["since_target"]


def _of_choice(outputs_BCQ: Tensor, choice_B: Tensor) -> Tensor:
    """The values of one choice a row, [B, Q]."""
    index = choice_B[:, None, None].expand(-1, 1, outputs_BCQ.shape[2])
    return outputs_BCQ.gather(1, index)[:, 0]


def _encoder_numbers(facts: WorldFacts) -> int:
    from galley.methods.control.sizes import encoder_numbers

    return encoder_numbers(facts.observations)[1]


METHOD = DeepQLearning
