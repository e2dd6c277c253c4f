"""What on-policy methods share: networks, one optimiser over all of them, collected steps with their advantages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from galley.base import GalleyError
from galley.base.generators import generator_state, load_generator
from galley.methods.control.flat_adam import FlatParameters
from galley.methods.control.rollouts import (
    Collector,
    Rollout,
    advantages,
    explained_variance,
    minibatches,
    standardised,
)
from galley.methods.control.written_out import WrittenOut, can_be_written_out, chunks, parameter_order
from galley.models.control.actor_critic import ActorCritic
from galley.models.control.distributions import Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments import Episode
    from galley.methods.control.base import World

    Array = np.ndarray[Any, Any]

_CHUNK = 512
"""Rows whose values are computed at once after a rollout."""


@dataclass(frozen=True)
class Gathered:
    """A rollout, ready to be learned from.

    Args:
        rows: columns of B rows: observations (as the networks see them), actions (as drawn), log_probs, values,
            advantages, returns.
        steps: in the environments.
        episodes: that ended.
        explained_variance: of the returns, by the values.
    """

    rows: dict[str, Array]
    steps: int
    episodes: Sequence[Episode]
    explained_variance: float


class OnPolicy:
    """Networks at work on one world.

    Args:
        world: with environments.
        num_steps: of each rollout, in each copy.
        gamma, gae_lambda: of the advantages.
        normalise_observations: whether, where they are plain numbers.
        normalise_rewards: whether rewards are divided by the standard deviation of discounted returns.
        initial_log_std: for actions that are numbers.
        noise_steps: that a draw of noise is kept for, where actions are numbers.
        masked: whether the environments are asked which choices are allowed.
    """

    def __init__(
        self,
        world: World,
        *,
        num_steps: int,
        gamma: float,
        gae_lambda: float,
        normalise_observations: bool,
        normalise_rewards: bool,
        initial_log_std: float,
        noise_steps: int = 1,
        masked: bool = False,
    ) -> None:
        assert world.environments is not None
        facts = world.facts
        normalise = normalise_observations and facts.observations.is_vector
        self.networks = ActorCritic(
            facts.observations,
            facts.actions,
            facts.network,
            normalise=normalise,
            initial_log_std=initial_log_std,
            masked=masked,
            seed=world.seed,
        ).to(world.device)
        self.random = np.random.default_rng([world.seed, 1])
        self.device = world.device
        by_hand = world.device == "cpu" and not masked and can_be_written_out(self.networks)
        self.flat = FlatParameters(parameter_order(self.networks) if by_hand else self.networks.parameters())
        self.written = WrittenOut(self.networks, self.flat, world.environments.num_envs) if by_hand else None
        self._gamma, self._gae_lambda = gamma, gae_lambda
        self._collector = Collector(
            world.environments,
            num_steps,
            gamma=gamma,
            normalise_observations=normalise,
            normalise_rewards=normalise_rewards,
            masked=masked,
            seed=world.seed,
        )
        self._actor = SampledActor(self.networks, self.written, self.random, world.device, noise_steps)
        self.updated()

    def gather(self) -> Gathered:
        """Collect a rollout, and judge it."""
        rollout = self._collector.collect(self._actor)
        if self._collector.normaliser is not None:
            self.networks.decision.take_moments(self._collector.normaliser)
        log_probs, values = self._judge(rollout)
        finals = [self._values(final.seen) for final in rollout.finals]
        found = advantages(rollout, values, finals, gamma=self._gamma, gae_lambda=self._gae_lambda)
        now = values[:-1]
        columns = {
            "observations": rollout.observations[:-1],
            "actions": rollout.actions,
            "log_probs": log_probs,
            "values": now,
            "advantages": found,
            "returns": found + now,
            **({} if rollout.masks is None else {"masks": rollout.masks}),
        }
        rows = rollout.rows(columns)
        explained = explained_variance(rows["values"], rows["returns"])
        return Gathered(rows, len(rows["values"]), rollout.episodes, explained)

    def judge(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Mapping[str, Tensor]]:
        """Log-probabilities, entropies and values now, [B], and the columns of the batch that belong to them."""
        return *self.networks.judge(batch["observations"], batch["actions"], batch.get("masks")), batch

    def minibatches(self, rows: Mapping[str, Array], batch_size: int) -> Iterator[dict[str, Array]]:
        """All rows once, in random order, in pieces."""
        return minibatches(rows, batch_size, self.random)

    def some(self, rows: Mapping[str, Array], batch_size: int) -> dict[str, Array]:
        """The first piece of the rows as they are."""
        return {name: column[:batch_size] for name, column in rows.items()}

    def standardise(self, batch: dict[str, Array]) -> None:
        """Bring the advantages of a piece to mean 0 and deviation 1."""
        batch["advantages"] = standardised(batch["advantages"])

    def updated(self) -> None:
        """Tell the decision what it cannot see: the standard deviations after an update."""
        if self.networks.log_std is not None:
            self.networks.decision.take_log_std(self.networks.log_std)

    def _judge(self, rollout: Rollout) -> tuple[Array, Array]:
        """Log-probabilities of the actions [T, N], and values [T + 1, N]."""
        steps, number = rollout.valid.shape
        seen = rollout.observations.reshape(-1, rollout.observations.shape[-1])
        chosen = rollout.actions.reshape(steps * number, *rollout.actions.shape[2:])
        masks = None if rollout.masks is None else rollout.masks.reshape(steps * number, -1)
        log_probs, values = np.empty(steps * number, np.float32), np.empty(len(seen), np.float32)
        for part in chunks(steps * number, _CHUNK):
            if self.written is not None:
                pieces = self.written.judge(seen[part], chosen[part])
                log_probs[part], values[part] = pieces.log_probs, pieces.values
                continue
            with torch.no_grad():
                allowed = None if masks is None else self._tensor(masks[part])
                judged = self.networks.judge(self._tensor(seen[part]), self._tensor(chosen[part]), allowed)
            log_probs[part], values[part] = judged[0].cpu().numpy(), judged[2].cpu().numpy()
        values[steps * number :] = self._values(rollout.observations[-1])
        return log_probs.reshape(steps, number), values.reshape(steps + 1, number)

    def _values(self, seen: Array) -> Array:
        if self.written is not None:
            return self.written.values(seen)
        with torch.no_grad():
            values: Array = self.networks(self._tensor(seen))[1].cpu().numpy()
        return values

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def tensors(self, rows: Mapping[str, Array]) -> dict[str, Tensor]:
        """Rows for a loss with autograd."""
        return {name: self._tensor(np.ascontiguousarray(column)) for name, column in rows.items()}

    def state(self) -> dict[str, Any]:
        """Weights, generator, environments and normalisation."""
        return {
            "weights": self.flat.data.clone(),
            "random": generator_state(self.random),
            "sampler": self._actor.sampler.state(),
            "collector": self._collector.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back.

        Raises:
            GalleyError: `checkpoint-mismatch` for weights of other networks.
        """
        if state["weights"].shape != self.flat.data.shape:
            raise GalleyError(
                "checkpoint-mismatch",
                f"the checkpoint has {state['weights'].numel()} weights, the networks {self.flat.data.numel()}",
                hint="use the recipe that it was trained with",
            )
        self.flat.data.copy_(state["weights"])
        self.updated()
        load_generator(self.random, state["random"])
        self._actor.sampler.load_state(state["sampler"])
        self._collector.load_state(state["collector"])
        if self._collector.normaliser is not None:
            self.networks.decision.take_moments(self._collector.normaliser)


class SampledActor:
    """Draws from the policy; see `Actor`.

    Args:
        networks: the policy's.
        written: its forward pass by hand, where there is one.
        random: of the draws.
        device: of the networks.
        noise_steps: see `Sampler`.
    """

    def __init__(
        self,
        networks: ActorCritic,
        written: WrittenOut | None,
        random: np.random.Generator,
        device: str,
        noise_steps: int = 1,
    ) -> None:
        self._networks, self._written, self._device = networks, written, device
        self.sampler = Sampler(networks.decision.spec.actions, random, noise_steps)
        self._noise: Array = np.zeros((0, 0, 0), np.float32)
        self._std: Array | None = None
        self._step = 0

    def begin(self, steps: int, num_envs: int) -> None:
        """Draw the noise of so many steps."""
        self._noise = self.sampler.noise(steps, num_envs)
        log_std = self._networks.log_std
        self._std = None if log_std is None else log_std.detach().exp().cpu().numpy()
        self._step = 0

    def act(self, seen_ND: Array, starts_N: Array, masks_NO: Array | None) -> tuple[Array, Array]:
        """Actions as drawn, and within their bounds."""
        if self._written is not None:
            outputs = self._written.outputs(seen_ND)
        else:
            decision = self._networks.decision
            with torch.no_grad():
                outputs = decision.outputs(torch.from_numpy(seen_ND).to(self._device)).cpu().numpy()
        drawn = self.sampler.draw(outputs, self._noise[self._step], self._std, masks_NO)
        self._step += 1
        return drawn, self.sampler.bounded(drawn)
