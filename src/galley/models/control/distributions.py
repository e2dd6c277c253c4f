"""Distributions over actions: what a stochastic policy's outputs mean.

Choices (discrete, multi-discrete, binary) are categorical, each part by itself; numbers (box) are Gaussian with a
standard deviation that does not depend on the observation. Shapes: B rows, O outputs, A parts of an action.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout

    Array = np.ndarray[Any, Any]

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_FORBIDDEN = -1e8
"""Instead of minus infinity: the probability is exactly 0 all the same, and 0 times its logarithm is 0."""


def log_prob_and_entropy(
    actions: ActionLayout, outputs_BO: Tensor, chosen: Tensor, log_std_A: Tensor | None, masks_BO: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of actions, and entropies of the distribution that they came from.

    Args:
        actions: layout.
        outputs_BO: logits of every choice, or means of numbers.
        chosen: [B] int64 for discrete spaces; else [B, A]. Numbers are as they were drawn, not clipped.
        log_std_A: of numbers; None for choices.
        masks_BO: choices that are allowed, bool; None when all are.

    Returns:
        [B] and [B], in nats, summed over the parts of an action.
    """
    if actions.kind == "box":
        assert log_std_A is not None
        errors_BA = (chosen - outputs_BO) * torch.exp(-log_std_A)
        log_probs_B = -0.5 * errors_BA.square().sum(1) - (log_std_A + LOG_SQRT_2PI).sum()
        entropy = (log_std_A + LOG_SQRT_2PI + 0.5).sum()
        return log_probs_B, entropy.expand(len(outputs_BO))
    if masks_BO is not None:
        outputs_BO = outputs_BO.where(masks_BO, _FORBIDDEN)
    chosen_BA = chosen.reshape(len(outputs_BO), actions.size)
    log_probs, entropies = [], []
    for number, logits_BC in enumerate(torch.split(outputs_BO, list(actions.sizes), dim=1)):
        logs_BC = logits_BC.log_softmax(1)
        log_probs.append(logs_BC.gather(1, chosen_BA[:, number : number + 1])[:, 0])
        entropies.append(-(logs_BC.exp() * logs_BC).sum(1))
    return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)


class Sampler:
    """Draws actions; noise for many steps is drawn at once, since calls cost more than numbers.

    Args:
        actions: layout.
        random: where the noise comes from.
        noise_steps: that a draw is kept for, where actions are numbers. Each action is distributed as before, but they
            drift together, and so move slow systems further.

    Source of the last: Hollenstein et al. 2024, "Colored Noise in PPO", https://arxiv.org/abs/2312.11091, here with
    noise that is constant in pieces.
    """

    def __init__(self, actions: ActionLayout, random: np.random.Generator, noise_steps: int = 1) -> None:
        self._actions = actions
        self._random = random
        self._kept_for = noise_steps if actions.kind == "box" else 1
        self._kept: Array | None = None
        self._count = 0
        self._low, self._high = np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)

    def noise(self, steps: int, rows: int) -> Array:
        """What `draw` needs for so many steps of so many rows, [T, N, O] float32.

        For choices it is Gumbel noise: the largest of logits plus noise is a sample (Gumbel 1954).
        """
        shape = (steps, rows, self._actions.num_choices)
        if self._actions.kind == "box":
            drawn = self._random.standard_normal(shape, np.float32)
            return self._keep(drawn) if self._kept_for > 1 else drawn
        found = self._random.standard_exponential(shape, np.float32)
        np.maximum(found, np.float32(1e-30), out=found)
        np.log(found, out=found)
        return np.negative(found, out=found)

    def _keep(self, noise_TNA: Array) -> Array:
        """Repeat draws, also from one rollout to the next."""
        for step, drawn in enumerate(noise_TNA):
            if self._count % self._kept_for == 0 or self._kept is None:
                self._kept = drawn.copy()
            else:
                noise_TNA[step] = self._kept
            self._count += 1
        return noise_TNA

    def state(self) -> dict[str, Any]:
        """The draw that is kept, and how many steps were drawn for; the generator is stored by who owns it."""
        return {"kept": None if self._kept is None else torch.from_numpy(self._kept.copy()), "count": self._count}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self._kept = None if state["kept"] is None else state["kept"].numpy().copy()
        self._count = state["count"]

    def draw(self, outputs_NO: Array, noise_NO: Array, std_A: Array | None, masks_NO: Array | None = None) -> Array:
        """Actions: [N] int64 for discrete spaces, [N, A] else; numbers are not yet clipped to their bounds.

        Args:
            outputs_NO: of the policy.
            noise_NO: of one step.
            std_A: standard deviations of numbers; None for choices.
            masks_NO: choices that are allowed; None when all are.
        """
        if std_A is not None:
            drawn: Array = noise_NO * std_A
            drawn += outputs_NO
            return drawn
        scores = outputs_NO + noise_NO
        if masks_NO is not None:
            scores = np.where(masks_NO, scores, np.float32(_FORBIDDEN))
        if self._actions.kind == "discrete":
            best: Array = scores.argmax(1)
            return best
        ends = np.cumsum(self._actions.sizes)[:-1]
        return np.stack([part.argmax(1) for part in np.split(scores, ends, axis=1)], axis=1)

    def bounded(self, drawn: Array) -> Array:
        """What the environment takes: numbers clipped to their bounds, choices as they are."""
        if self._actions.kind != "box":
            return drawn
        return np.minimum(np.maximum(drawn, self._low), self._high)
