"""Acting and learning in turns, shared by methods with a replay memory: collect some steps, then update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from galley.methods.control.base import Outcome, World

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.environments import Episode
    from galley.methods.base import Loss
    from galley.methods.control.replay import ReplayMemory
    from galley.models.control.decision import Decision

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Turns:
    """When to act and when to learn. All in environment steps over all copies, idle ones not counted.

    Args:
        learning_starts: steps of random actions, without updates.
        train_frequency: steps between updates.
        gradient_steps: updates after each `train_frequency` steps.
    """

    learning_starts: int
    train_frequency: int
    gradient_steps: int


@dataclass(frozen=True)
class Updates:
    """What came of some updates.

    Args:
        loss: mean of the main loss.
        grad_norm: mean L2 norm of its gradient.
        learning_rate: of the last one.
        metrics: more means.
    """

    loss: float
    grad_norm: float
    learning_rate: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    """What differs between off-policy methods: how to act, and how to learn from minibatches."""

    decision: Decision
    parts: tuple[str, ...]

    def act(self, observations: Array, *, random: bool) -> Array:
        """Actions that explore, as the memory keeps them.

        Args:
            observations: [N, D].
            random: nothing has been learned yet, so any action is as good.
        """

    def native(self, actions: Array) -> Array:
        """The same in the environment's units."""

    def ended(self, over: Array) -> None:
        """Episodes ended, [N] bool."""

    def sample(self, memory: ReplayMemory) -> dict[str, Tensor]:
        """A minibatch with the noise that its losses need."""

    def update(self, memory: ReplayMemory, count: int) -> Updates:
        """`count` updates, each from a new minibatch."""

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """See `Agent.loss`."""

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """See `Agent.parameters`."""

    def state(self) -> Mapping[str, Any]:
        """Networks, optimisers, noise and generators."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""


class OffPolicyAgent:
    """A learner at work in its environments; see `Agent`.

    A round is `train_frequency` environment steps, rounded up to a step of every copy, and the updates they are worth;
    what was rounded up counts for the next round, so that the ratio of updates to steps does not depend on the copies.

    Args:
        world: with environments.
        learner: acts and learns.
        memory: empty.
        turns: when to do what.
    """

    def __init__(self, world: World, learner: Learner, memory: ReplayMemory, turns: Turns) -> None:
        assert world.environments is not None
        self._environments = world.environments
        self._learner, self.memory, self._turns = learner, memory, turns
        self.decision, self.parts = learner.decision, learner.parts
        self._steps = 0
        self._owed = 0
        self._now = self._environments.reset(world.seed)

    def step(self, done: int) -> Outcome:
        """One round."""
        turns = self._turns
        before = self._steps
        episodes: list[Episode] = []
        while self._owed < turns.train_frequency:
            played, ended = self._act()
            self._steps += played
            self._owed += played
            episodes.extend(ended)
        times, self._owed = divmod(self._owed, turns.train_frequency)
        count = times * turns.gradient_steps if self._steps > turns.learning_starts else 0
        if not count:
            nan = float("nan")
            return Outcome(self._steps - before, 0, nan, nan, nan, {}, episodes)
        made = self._learner.update(self.memory, count)
        return Outcome(
            self._steps - before, count, made.loss, made.grad_norm, made.learning_rate, made.metrics, episodes
        )

    def _act(self) -> tuple[int, Sequence[Episode]]:
        actions = self._learner.act(self._now, random=self._steps < self._turns.learning_starts)
        step = self._environments.step(self._learner.native(actions))
        self.memory.add(self._now, actions, step)
        self._now = step.observations
        if step.episodes:
            self._learner.ended(step.terminated | step.truncated)
        played = len(actions) if step.idle is None else int(np.count_nonzero(~step.idle))
        return played, step.episodes

    def sample(self) -> Mapping[str, Tensor]:
        """A minibatch."""
        return self._learner.sample(self.memory)

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """Of one part."""
        return self._learner.loss(part, batch)

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """That it trains."""
        return self._learner.parameters(part)

    def state(self) -> Mapping[str, Any]:
        """Everything; the memory's tensors are its own."""
        return {
            "learner": self._learner.state(),
            "memory": self.memory.state(),
            "environments": self._environments.state(),
            "steps": self._steps,
            "owed": self._owed,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue."""
        self._learner.load_state(state["learner"])
        self.memory.load_state(state["memory"])
        self._now = self._environments.load_state(state["environments"])
        self._steps, self._owed = state["steps"], state["owed"]
