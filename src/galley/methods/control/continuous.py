"""What the off-policy methods for continuous actions share: settings to parts, and memory before the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from galley.methods.control.sizes import adam_bytes, decision_numbers

if TYPE_CHECKING:
    import torch

    from galley.methods.control.base import World, WorldFacts
    from galley.methods.control.off_policy import Learner, OffPolicyAgent
    from galley.methods.control.soft import SoftCritic


def agent_of(config: Any, world: World, learner: Learner) -> OffPolicyAgent:
    """The agent of a learner, with an empty memory.

    Args:
        config: of one of these methods; they share the names of what concerns acting and remembering.
        world: to act in.
        learner: of that method.
    """
    from galley.methods.control.off_policy import OffPolicyAgent, Turns
    from galley.methods.control.replay import ReplayMemory

    facts = world.facts
    memory = ReplayMemory(
        config.buffer_size,
        config.num_envs,
        facts.observations,
        facts.actions,
        gamma=config.gamma,
        n_step=config.n_step,
        seed=world.seed,
    )
    turns = Turns(config.learning_starts, config.train_frequency, config.gradient_steps)
    return OffPolicyAgent(world, learner, memory, turns)


def soft_agent(
    config: Any,
    world: World,
    critic: Callable[[torch.Generator], SoftCritic],
    *,
    actor_delay: int = 1,
    betas: tuple[float, float] = (0.9, 0.999),
) -> OffPolicyAgent:
    """The agent of a method with an entropy coefficient.

    Args:
        config: its settings.
        world: to act in.
        critic: makes its critics, with first weights from a generator.
        actor_delay: updates of the critics for one of the actor.
        betas: of Adam.
    """
    import torch

    from galley.methods.control.offline import seeded
    from galley.methods.control.soft import SoftLearner, SoftSettings

    settings = SoftSettings(
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        entropy_coefficient=config.entropy_coefficient,
        initial_entropy_coefficient=config.initial_entropy_coefficient,
        target_entropy=config.target_entropy,
        exploration_noise=config.exploration_noise,
        noise_std=config.noise_std,
        matrix_products=config.matrix_products,
        actor_delay=actor_delay,
        betas=betas,
    )
    generator = torch.Generator().manual_seed(world.seed)
    learner = seeded(world.seed, lambda: SoftLearner(world, settings, critic(generator), generator))
    return agent_of(config, world, learner)


def memory_bytes(
    config: Any,
    facts: WorldFacts,
    *,
    critics: int,
    targets: int,
    outputs: int = 1,
    actor_outputs: int = 1,
    actor_targets: int = 0,
) -> Mapping[str, int]:
    """Bytes by part.

    Args:
        config: settings.
        facts: layouts, network.
        critics: how many networks.
        targets: how many copies of critics.
        outputs: of each critic.
        actor_outputs: for each number of an action.
        actor_targets: copies of the actor.
    """
    from galley.methods.control.replay import num_bytes

    size = facts.actions.size
    critic = decision_numbers(facts, outputs, more_inputs=size)
    actor = decision_numbers(facts, actor_outputs * size)
    trained = critics * critic + actor
    replay = num_bytes(config.buffer_size, config.num_envs, facts.observations, facts.actions, n_step=config.n_step)
    networks = trained + targets * critic + actor_targets * actor
    return {"replay": replay, "networks": 4 * networks, "optimizer": adam_bytes(trained)}
