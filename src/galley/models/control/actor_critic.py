"""A policy and a value function over one encoder, as on-policy methods train them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.decision import Decision, DecisionSpec
from galley.models.control.distributions import log_prob_and_entropy
from galley.models.control.mlp import Mlp, orthogonal

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.models.control.spec import NetworkSpec


class ActorCritic(nn.Module):
    """Policy, value function and, for actions that are numbers, standard deviations.

    Args:
        observations, actions: layouts.
        network: hidden layers of each of both; convolutions and a network of one's own are shared.
        normalise: whether the policy holds a normalisation of observations.
        masked: whether the policy is told which choices are allowed.
        initial_log_std: logarithm of the first standard deviation, for numbers.
        seed: of the first weights: orthogonal, gain sqrt(2), 0.01 for the policy's last layer and 1 for the value's.

    Source: Engstrom et al. 2020 and Andrychowicz et al. 2021 on the first weights.
    """

    def __init__(
        self,
        observations: ObservationLayout,
        actions: ActionLayout,
        network: NetworkSpec,
        *,
        normalise: bool,
        initial_log_std: float,
        masked: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        box = actions.kind == "box"
        spec = DecisionSpec(
            observations, actions, network, "mean" if box else "logits", normalise=normalise, masked=masked
        )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.decision = Decision(spec)
            self.critic = Mlp((self.decision.encoder.num_features, *network.hidden, 1), network.activation)
        self.log_std = nn.Parameter(torch.full((actions.size,), initial_log_std)) if box else None
        generator = torch.Generator().manual_seed(seed)
        if self.decision.encoder.own is None:
            orthogonal(self.decision.encoder, math.sqrt(2), generator)
        for body, last in ((self.decision.body, 0.01), (self.critic, 1.0)):
            orthogonal(body, math.sqrt(2), generator)
            orthogonal(body[-1], last, generator)

    def forward(self, seen_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the policy [B, O] and values [B], for observations that are normalised already."""
        features_BF = self.decision.encoder(seen_BD)
        return self.decision.from_features(features_BF), cast("Tensor", self.critic(features_BF))[:, 0]

    def judge(self, seen_BD: Tensor, chosen: Tensor, masks_BO: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of actions, entropies, and values of observations; [B] each.

        Args:
            seen_BD: observations, normalised already.
            chosen: actions as they were drawn.
            masks_BO: choices that are allowed; None when all are.
        """
        outputs_BO, values_B = self(seen_BD)
        actions = self.decision.spec.actions
        log_probs_B, entropies_B = log_prob_and_entropy(actions, outputs_BO, chosen, self.log_std, masks_BO)
        return log_probs_B, entropies_B, values_B
