"""The seam of learning to act: a method makes an agent for a world; the agent collects, learns, and can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from galley.methods.base import Loss, MethodConfig, Note

if TYPE_CHECKING:
    from torch import Tensor, nn

    from galley.data.environments import Environments, Episode
    from galley.data.environments.layout import ActionKind, ActionLayout, ObservationLayout
    from galley.data.episodes import StoredEpisodes
    from galley.models.control.decision import Decision
    from galley.models.control.spec import NetworkSpec

__all__ = ["Agent", "ControlConfig", "ControlMethod", "Experience", "Loss", "Outcome", "World", "WorldFacts"]

Experience = Literal["on-policy", "off-policy", "offline"]


class ControlConfig(MethodConfig):
    """Base of the settings of methods that learn to act."""


@dataclass(frozen=True)
class WorldFacts:
    """What is known of a world before anything is made: enough to plan.

    Args:
        observations, actions: layouts.
        network: of the policy.
        steps: environment steps of the whole training, over all copies; 0 for stored episodes.
    """

    observations: ObservationLayout
    actions: ActionLayout
    network: NetworkSpec
    steps: int


@dataclass(frozen=True)
class World:
    """What an agent is made for.

    Args:
        facts: layouts, network and length of the training.
        environments: to act in, not yet reset; None when it learns from stored episodes alone.
        episodes: stored ones to learn from; None when it acts.
        seed: of networks, sampling and environments.
        device: torch device of networks and updates.
        note: called as note(kind, message) with facts a user should know.
    """

    facts: WorldFacts
    environments: Environments | None
    episodes: StoredEpisodes | None
    seed: int
    device: str
    note: Note


@dataclass(frozen=True)
class Outcome:
    """One round: some steps in the environments, and the updates that they were worth.

    Args:
        steps: environment steps taken, over all copies (idle ones not counted); offline, updates.
        updates: optimiser steps taken.
        loss: mean over the updates of the method's main loss; NaN when there was no update yet.
        grad_norm: mean L2 norm of its gradient before clipping; NaN likewise.
        learning_rate: of the last update.
        metrics: more means, by name; documented on the method's page.
        episodes: that ended.
    """

    steps: int
    updates: int
    loss: float
    grad_norm: float
    learning_rate: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()


class Agent(Protocol):
    """A method at work on one world.

    Everything that changes lies in `state()`: networks, optimisers, normalisers, replay memory, random generators,
    environments; `load_state(state())` continues bit for bit.
    """

    decision: Decision
    """The policy as it is now; its normalisation is up to date after every `step`."""
    parts: tuple[str, ...]
    """Names of its losses, each with parameters of its own, in the order of an update, e.g. critic, actor."""

    def step(self, done: int) -> Outcome:
        """One round.

        Args:
            done: environment steps before it; schedules follow `done / facts.steps`.
        """

    def sample(self) -> Mapping[str, Tensor]:
        """A batch that an update would learn from: tensors with as many rows each. Needs some rounds before."""

    def loss(self, part: str, batch: Mapping[str, Tensor]) -> Loss:
        """A part's loss over the rows of a batch, as a sum and its denominator; differentiable.

        What is random in it (such as the actor's actions in SAC) is drawn from noise that stands in the batch, so that
        a loss does not depend on how a batch is split.
        """

    def parameters(self, part: str) -> Sequence[nn.Parameter]:
        """What that part's loss trains."""

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint: tensors and plain values in nested mappings."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken."""


class ControlMethod(Protocol):
    """One way to learn to act. A file `methods/control/NAME.py` defines `METHOD = TheClass`.

    Declarations are class attributes, read without importing torch.
    """

    name: ClassVar[str]
    experience: ClassVar[Experience]
    action_kinds: ClassVar[tuple[ActionKind, ...]]
    """Action spaces that it can learn."""
    network: ClassVar[NetworkSpec]
    """Default of the recipe's `model:`."""
    paper: ClassVar[str]
    Config: ClassVar[type[ControlConfig]]

    def __init__(self, config: Any) -> None: ...

    @property
    def num_envs(self) -> int:
        """Copies of the environment that it acts in; 0 for offline methods."""

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """Bytes that it will hold by part (`replay`, `rollout`, `networks`, `optimizer`), known before the start."""

    def agent(self, world: World) -> Agent:
        """Networks, memory and optimisers for this world, ready to step.

        Raises:
            GalleyError: `environment-unsupported` when the world is not what it can learn.
        """
