"""PPO where the environment says which choices are allowed; the others have probability 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from galley.methods.control.base import ControlConfig, Experience, World, WorldFacts
from galley.methods.control.ppo import PpoAgent, PpoConfig, collection
from galley.methods.control.sizes import on_policy_bytes
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionKind


class MaskablePpo:
    """PPO with forbidden choices left out of sampling, ratios, entropy and decisions.

    The environment has a method `action_masks()`, which gives a truth value for each choice, those of several choices
    one after the other. A forbidden choice's logit is -1e8, so that its probability is exactly 0.

    Source: Huang and Ontañón 2022, https://arxiv.org/abs/2006.14171.
    """

    name: ClassVar[str] = "maskable-ppo"
    experience: ClassVar[Experience] = "on-policy"
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi-discrete", "binary")
    network: ClassVar[NetworkSpec] = NetworkSpec((64, 64), "tanh")
    paper: ClassVar[str] = "https://arxiv.org/abs/2006.14171"
    Config: ClassVar[type[ControlConfig]] = PpoConfig

    def __init__(self, config: PpoConfig) -> None:
        self.config = config

    @property
    def num_envs(self) -> int:
        """Copies that it plays in."""
        return self.config.num_envs

    def memory_bytes(self, facts: WorldFacts) -> Mapping[str, int]:
        """As of PPO, and the masks of a rollout as it was collected and in random order."""
        steps = self.config.num_steps * self.config.num_envs
        parts = on_policy_bytes(facts, steps)
        return {**parts, "rollout": parts["rollout"] + 2 * steps * facts.actions.num_choices}

    def agent(self, world: World) -> PpoAgent:
        """An agent that has not learned yet.

        Raises:
            GalleyError: `environment-unsupported`, at the first step, when the environments have no `action_masks()`.
        """
        from galley.methods.control.on_policy import OnPolicy

        return PpoAgent(self.config, world, OnPolicy(world, **collection(self.config), masked=True))


METHOD = MaskablePpo
