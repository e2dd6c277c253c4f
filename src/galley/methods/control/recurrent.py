"""Collected steps as sequences, with what was remembered before each: the part of PPO that a memory changes.

Shapes: T steps of N copies, S sequences of L steps (shorter ones are padded), H units of a memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from galley.base.generators import generator_state, load_generator
from galley.methods.control.flat_adam import FlatParameters
from galley.methods.control.on_policy import Gathered
from galley.methods.control.rollouts import Collector, Rollout, advantages, explained_variance, standardised
from galley.models.control.decision import forget
from galley.models.control.distributions import Sampler, log_prob_and_entropy
from galley.models.control.recurrent import RecurrentActorCritic

if TYPE_CHECKING:
    from torch import Tensor

    from galley.methods.control.base import World

    Array = np.ndarray[Any, Any]

_MEMORIES = ("policy_hidden", "policy_cell", "critic_hidden", "critic_cell")


class RecurrentCore:
    """Networks with memories at work on one world; has what `OnPolicy` has.

    Args:
        world: with environments.
        units: H.
        sequence_length: longer sequences are cut, and go on from what was remembered when they were played; None
            cuts at ends of episodes and of rollouts alone.
        num_steps, gamma, gae_lambda, normalise_observations, normalise_rewards, initial_log_std,
            noise_steps: see `OnPolicy`.
    """

    written = None

    def __init__(
        self,
        world: World,
        *,
        units: int,
        sequence_length: int | None,
        num_steps: int,
        gamma: float,
        gae_lambda: float,
        normalise_observations: bool,
        normalise_rewards: bool,
        initial_log_std: float,
        noise_steps: int,
    ) -> None:
        assert world.environments is not None
        facts = world.facts
        normalise = normalise_observations and facts.observations.is_vector
        self.networks = RecurrentActorCritic(
            facts.observations,
            facts.actions,
            facts.network,
            units=units,
            normalise=normalise,
            initial_log_std=initial_log_std,
            seed=world.seed,
        ).to(world.device)
        self.random = np.random.default_rng([world.seed, 1])
        self.device = world.device
        self.flat = FlatParameters(self.networks.parameters())
        self._gamma, self._gae_lambda = gamma, gae_lambda
        self._length = sequence_length or num_steps
        self._collector = Collector(
            world.environments,
            num_steps,
            gamma=gamma,
            normalise_observations=normalise,
            normalise_rewards=normalise_rewards,
            seed=world.seed,
        )
        self._actor = RememberingActor(
            self.networks, self.random, world.environments.num_envs, world.device, noise_steps
        )
        self.updated()

    def gather(self) -> Gathered:
        """Collect a rollout, judge it, and cut it into sequences."""
        rollout, actor = self._collector.collect(self._actor), self._actor
        if self._collector.normaliser is not None:
            self.networks.decision.take_moments(self._collector.normaliser)
        values, finals = actor.following(rollout)
        found = advantages(rollout, values, finals, gamma=self._gamma, gae_lambda=self._gae_lambda)
        now = values[:-1]
        columns = {
            "observations": rollout.observations[:-1],
            "actions": rollout.actions,
            "log_probs": actor.log_probs(rollout),
            "values": now,
            "advantages": found,
            "returns": found + now,
        }
        kept = rollout.rows({"values": now, "returns": columns["returns"]})
        explained = explained_variance(kept["values"], kept["returns"])
        rows = sequences(rollout, columns, actor.remembered(), self._length)
        return Gathered(rows, len(kept["values"]), rollout.episodes, explained)

    def judge(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Log-probabilities, entropies and values now of all steps that are no padding, [B], with their columns."""
        valid_SL = batch["valid"]
        policy, critic = ((batch[f"{who}_hidden"][None], batch[f"{who}_cell"][None]) for who in ("policy", "critic"))
        outputs_LSO, values_LS, _, _ = self.networks(batch["observations"].transpose(0, 1), policy, critic)
        outputs_BO, values_B = outputs_LSO.transpose(0, 1)[valid_SL], values_LS.T[valid_SL]
        columns = {name: batch[name][valid_SL] for name in ("actions", "log_probs", "values", "advantages", "returns")}
        spec = self.networks.decision.spec
        judged = log_prob_and_entropy(spec.actions, outputs_BO, columns["actions"], self.networks.log_std)
        return *judged, values_B, columns

    def minibatches(self, rows: Mapping[str, Array], batch_size: int) -> Iterator[dict[str, Array]]:
        """All sequences once, in random order, in pieces of about so many steps, padding not counted."""
        number = len(rows["valid"])
        pieces = min(number, max(1, round(int(rows["valid"].sum()) / batch_size)))
        for chosen in np.array_split(self.random.permutation(number), pieces):
            yield trimmed({name: column[chosen] for name, column in rows.items()})

    def some(self, rows: Mapping[str, Array], batch_size: int) -> dict[str, Array]:
        """The first sequences, of so many steps or all."""
        steps = np.cumsum(rows["valid"].sum(axis=1))
        number = int(np.searchsorted(steps, batch_size)) + 1
        return trimmed({name: column[:number] for name, column in rows.items()})

    def standardise(self, batch: dict[str, Array]) -> None:
        """Bring the advantages of a piece, without padding, to mean 0 and deviation 1."""
        valid, found = batch["valid"], batch["advantages"].copy()
        found[valid] = standardised(found[valid])
        batch["advantages"] = found

    def tensors(self, rows: Mapping[str, Array]) -> dict[str, Tensor]:
        """Rows for a loss."""
        return {name: torch.from_numpy(np.ascontiguousarray(rows[name])).to(self.device) for name in rows}

    def updated(self) -> None:
        """Tell the decision the standard deviations after an update."""
        if self.networks.log_std is not None:
            self.networks.decision.take_log_std(self.networks.log_std)

    def state(self) -> dict[str, Any]:
        """Weights, generator, environments, normalisation and memories."""
        return {
            "weights": self.flat.data.clone(),
            "random": generator_state(self.random),
            "sampler": self._actor.sampler.state(),
            "collector": self._collector.state(),
            "memories": [memory.clone() for memory in self._actor.now],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.flat.data.copy_(state["weights"])
        self.updated()
        load_generator(self.random, state["random"])
        self._actor.sampler.load_state(state["sampler"])
        self._collector.load_state(state["collector"])
        self._actor.now = tuple(memory.clone().to(self.device) for memory in state["memories"])
        if self._collector.normaliser is not None:
            self.networks.decision.take_moments(self._collector.normaliser)


class RememberingActor:
    """Draws from a policy with memory, and keeps what was remembered; see `rollouts.Actor`.

    What is remembered after a step is kept as it is: it is forgotten where an episode begins, but the value of the last
    observation of an episode that was cut off needs it.

    Args:
        networks: policy and critic.
        random: of the draws.
        num_envs: N.
        device: of the networks.
        noise_steps: see `Sampler`.
    """

    def __init__(
        self,
        networks: RecurrentActorCritic,
        random: np.random.Generator,
        num_envs: int,
        device: str,
        noise_steps: int,
    ) -> None:
        self._networks, self._device = networks, device
        self.sampler = Sampler(networks.decision.spec.actions, random, noise_steps)
        self._noise: Array = np.zeros((0, 0, 0), np.float32)
        self._std: Array | None = None
        policy, critic = networks.begin(num_envs)
        self.now: tuple[Tensor, ...] = (*policy, *critic)
        self._used: list[tuple[Tensor, ...]] = []
        self._after: list[tuple[Tensor, ...]] = []
        self._outputs: list[Tensor] = []
        self._values: list[Tensor] = []

    def begin(self, steps: int, num_envs: int) -> None:
        """Draw the noise of so many steps."""
        self._noise = self.sampler.noise(steps, num_envs)
        log_std = self._networks.log_std
        self._std = None if log_std is None else log_std.detach().exp().cpu().numpy()
        self._used, self._after, self._outputs, self._values = [], [], [], []

    def act(self, seen_ND: Array, starts_N: Array, masks_NO: Array | None) -> tuple[Array, Array]:
        """Actions as drawn, and within their bounds."""
        starts = torch.from_numpy(starts_N).to(self._device)
        with torch.no_grad():
            policy, critic = forget(self.now[:2], starts), forget(self.now[2:], starts)  # type: ignore[arg-type]
            self._used.append((*policy, *critic))
            outputs, values, policy, critic = self._networks(self._tensor(seen_ND)[None], policy, critic)
        self.now = (*policy, *critic)
        self._after.append(self.now)
        self._outputs.append(outputs[0])
        self._values.append(values[0])
        drawn = self.sampler.draw(outputs[0].cpu().numpy(), self._noise[len(self._used) - 1], self._std)
        return drawn, self.sampler.bounded(drawn)

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _value(self, seen: Array, step: int, rows: Array) -> Array:
        """Of what followed a step in these rows, with all that was remembered of it."""
        chosen = torch.from_numpy(rows).to(self._device)
        hidden, cell = (memory[:, chosen] for memory in self._after[step][2:])
        with torch.no_grad():
            values: Array = self._networks.value(self._tensor(seen), (hidden, cell)).cpu().numpy()
        return values

    def following(self, rollout: Rollout) -> tuple[Array, list[Array]]:
        """Values of all observations, [T + 1, N], and of each of `rollout.finals`.

        A row that follows a cut without a final is idle, and holds the last observation: its value is that one's.
        """
        steps, number = rollout.valid.shape
        values = np.empty((steps + 1, number), np.float32)
        values[:steps] = torch.stack(self._values).cpu().numpy()
        values[steps] = self._value(rollout.observations[steps], steps - 1, np.arange(number))
        cut = rollout.truncated & ~rollout.terminated
        for final in rollout.finals:
            cut[final.step, final.rows] = False
        for step in np.flatnonzero(cut[:-1].any(axis=1)):
            rows = np.flatnonzero(cut[step])
            values[step + 1, rows] = self._value(rollout.observations[step + 1, rows], int(step), rows)
        return values, [self._value(final.seen, final.step, final.rows) for final in rollout.finals]

    def log_probs(self, rollout: Rollout) -> Array:
        """Of the drawn actions, [T, N]."""
        steps, number = rollout.valid.shape
        chosen = self._tensor(rollout.actions.reshape(steps * number, *rollout.actions.shape[2:]))
        actions, log_std = self._networks.decision.spec.actions, self._networks.log_std
        with torch.no_grad():
            found, _ = log_prob_and_entropy(actions, torch.cat(self._outputs), chosen, log_std)
        log_probs: Array = found.cpu().numpy().reshape(steps, number)
        return log_probs

    def remembered(self) -> dict[str, Array]:
        """What was remembered before each step, [T, N, H] by name."""
        return {name: torch.cat([used[i] for used in self._used]).cpu().numpy() for i, name in enumerate(_MEMORIES)}


def sequences(
    rollout: Rollout, columns: Mapping[str, Array], remembered: Mapping[str, Array], length: int
) -> dict[str, Array]:
    """A rollout cut at starts of episodes, at idle rows, and where a sequence would become too long.

    Args:
        rollout: T steps of N copies.
        columns: [T, N, ...] each.
        remembered: before each step, [T, N, H] each.
        length: L, of the longest.

    Returns:
        Columns [S, L, ...], padded with zeros; `valid` [S, L]; and what is remembered before the first step, [S, H].
    """
    spans: list[tuple[int, int, int]] = []
    for copy in range(rollout.valid.shape[1]):
        begun: int | None = None
        for t, (valid, start) in enumerate(zip(rollout.valid[:, copy], rollout.starts[:, copy], strict=True)):
            if begun is not None and (not valid or start or t - begun == length):
                spans.append((copy, begun, t))
                begun = None
            if valid and begun is None:
                begun = t
        if begun is not None:
            spans.append((copy, begun, len(rollout.valid)))
    rows = {name: np.zeros((len(spans), length, *c.shape[2:]), c.dtype) for name, c in columns.items()}
    rows["valid"] = np.zeros((len(spans), length), np.bool_)
    for number, (copy, begun, end) in enumerate(spans):
        rows["valid"][number, : end - begun] = True
        for name, column in columns.items():
            rows[name][number, : end - begun] = column[begun:end, copy]
    copies, starts = np.array([span[0] for span in spans]), np.array([span[1] for span in spans])
    return rows | {name: memory[starts, copies] for name, memory in remembered.items()}


def trimmed(rows: dict[str, Array]) -> dict[str, Array]:
    """Without steps that are padding in every sequence."""
    longest = int(rows["valid"].sum(axis=1).max())
    return {name: column if name in _MEMORIES else column[:, :longest] for name, column in rows.items()}
