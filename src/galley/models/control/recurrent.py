"""A policy and a value function with memories of their own over one encoder.

Shapes: S sequences of L steps, D numbers of an observation, F features, H units of a memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from galley.models.control.decision import Decision, DecisionSpec, Remembered
from galley.models.control.mlp import Mlp, orthogonal

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.models.control.spec import NetworkSpec


class RecurrentActorCritic(nn.Module):
    """Two LSTMs, one for the policy and one for the values, with hidden layers after each.

    Args:
        observations, actions: layouts.
        network: hidden layers of each of both; convolutions and a network of one's own are shared.
        units: H of each memory.
        normalise: whether the policy holds a normalisation of observations.
        initial_log_std: logarithm of the first standard deviation, for numbers.
        seed: of the first weights: orthogonal as in PPO, those of the memories as PyTorch draws them.
    """

    def __init__(
        self,
        observations: ObservationLayout,
        actions: ActionLayout,
        network: NetworkSpec,
        *,
        units: int,
        normalise: bool,
        initial_log_std: float,
        seed: int,
    ) -> None:
        super().__init__()
        box = actions.kind == "box"
        rule = "mean" if box else "logits"
        spec = DecisionSpec(observations, actions, network, rule, normalise=normalise, lstm=units)  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.decision = Decision(spec)
            self.critic_memory = nn.LSTM(self.decision.encoder.num_features, units)
            self.critic = Mlp((units, *network.hidden, 1), network.activation)
        self.log_std = nn.Parameter(torch.full((actions.size,), initial_log_std)) if box else None
        generator = torch.Generator().manual_seed(seed)
        if self.decision.encoder.own is None:
            orthogonal(self.decision.encoder, math.sqrt(2), generator)
        for body, last in ((self.decision.body, 0.01), (self.critic, 1.0)):
            orthogonal(body, math.sqrt(2), generator)
            orthogonal(body[-1], last, generator)

    def begin(self, num_envs: int) -> tuple[Remembered, Remembered]:
        """Empty memories of policy and critic."""
        empty = self.decision.begin(num_envs)
        assert empty is not None
        return empty, empty

    def forward(
        self, seen_LSD: Tensor, policy: Remembered, critic: Remembered
    ) -> tuple[Tensor, Tensor, Remembered, Remembered]:
        """Sequences without an episode's start inside.

        Args:
            seen_LSD: observations, normalised already.
            policy: what it remembers before the first step.
            critic: likewise.

        Returns:
            Outputs of the policy [L, S, O], values [L, S], and what is remembered after the last step.
        """
        steps, rows = seen_LSD.shape[:2]
        memory = cast("nn.LSTM", self.decision.memory)
        features_BF = self.decision.encoder(seen_LSD.flatten(0, 1))
        features_LSF = features_BF.reshape(steps, rows, self.decision.encoder.num_features)
        recalled_LSH, policy = memory(features_LSF, policy)
        outputs_BO = self.decision.from_features(recalled_LSH.flatten(0, 1))
        outputs_LSO = outputs_BO.reshape(steps, rows, self.decision.spec.num_outputs)
        judged_LSH, critic = self.critic_memory(features_LSF, critic)
        return outputs_LSO, self.critic(judged_LSH)[..., 0], policy, critic

    def value(self, seen_ND: Tensor, critic: Remembered) -> Tensor:
        """Values of one more observation, [N]."""
        features_NF = self.decision.encoder(seen_ND)
        judged_1NH, _ = self.critic_memory(features_NF[None], critic)
        return cast("Tensor", self.critic(judged_1NH[0])[:, 0])
