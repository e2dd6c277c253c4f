"""The whole decision function: raw observation in, the environment's own action out. It is saved and exported.

It holds everything that stands between them: normalisation, network, choice, clipping and unscaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import torch
from torch import nn

from galley.data.environments.layout import ActionLayout, ObservationLayout
from galley.models.control.encoder import Encoder
from galley.models.control.mlp import Mlp
from galley.models.control.spec import NetworkSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from galley.models.control.moments import Normaliser

    Array = np.ndarray[Any, Any]

Remembered: TypeAlias = "tuple[Tensor, Tensor]"
"""Hidden state and cell of an LSTM, [1, N, H] each."""
Rule = Literal["logits", "mean", "squashed", "values", "quantiles"]
"""How outputs become the best action.

- `logits`: the likeliest choice of each part.
- `mean`: the outputs are the action, clipped to its bounds.
- `squashed`: tanh of the outputs, stretched to the bounds.
- `values`: the choice with the highest value.
- `quantiles`: the choice with the highest mean over its quantiles.
"""


@dataclass(frozen=True)
class DecisionSpec:
    """All that is needed to build a decision function anew, stored as policy.json.

    Args:
        observations, actions: what goes in and comes out.
        network: hidden layers between.
        rule: how outputs become an action.
        normalise: whether observations are normalised; `clip` bounds them then.
        quantiles: of each choice, for the rule `quantiles`.
        dueling: state value and advantages apart, for `values` and `quantiles`.
        lstm: units of a recurrent layer between encoder and hidden layers; 0 for none.
        masked: whether choices that the environment forbids are left out, for `logits`.
    """

    observations: ObservationLayout
    actions: ActionLayout
    network: NetworkSpec
    rule: Rule
    normalise: bool = False
    clip: float = 10.0
    quantiles: int = 1
    dueling: bool = False
    lstm: int = 0
    masked: bool = False

    @property
    def num_outputs(self) -> int:
        """Outputs of the network."""
        return self.actions.num_choices * (self.quantiles if self.rule == "quantiles" else 1)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {"observations": self.observations.to_json(), "actions": self.actions.to_json()}
        return {**asdict(replace(self)), **plain}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DecisionSpec:
        """What `to_json` gave."""
        network = stored["network"]
        return cls(
            **{
                **stored,
                "observations": ObservationLayout.from_json(stored["observations"]),
                "actions": ActionLayout.from_json(stored["actions"]),
                "network": NetworkSpec(tuple(network["hidden"]), network["activation"], network["source"]),
            }
        )


class Decision(nn.Module):
    """The network of a policy with all that is around it.

    Args:
        spec: what to build.
        encoder: shared with another network, such as a critic; its own when None.
    """

    def __init__(self, spec: DecisionSpec, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = encoder if encoder is not None else Encoder(spec.observations, spec.network.source)
        self.memory = nn.LSTM(self.encoder.num_features, spec.lstm) if spec.lstm else None
        width = spec.lstm or self.encoder.num_features
        hidden = spec.network.hidden
        self.body = Mlp((width, *hidden, spec.num_outputs), spec.network.activation)
        per_choice = spec.num_outputs // spec.actions.num_choices
        self.value = Mlp((width, *hidden, per_choice), spec.network.activation) if spec.dueling else None
        size = spec.observations.size if spec.normalise else 0
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("low", torch.tensor(spec.actions.low))
        self.register_buffer("high", torch.tensor(spec.actions.high))
        self.register_buffer("log_std", None)

    def take_moments(self, normaliser: Normaliser) -> None:
        """Copy what the normaliser knows, so that it is saved with the weights."""
        moments = normaliser.moments
        self.get_buffer("shift").copy_(torch.from_numpy(moments.mean))
        self.get_buffer("scale").copy_(torch.from_numpy((moments.variance + 1e-8) ** 0.5))

    def take_log_std(self, log_std_A: Tensor) -> None:
        """Copy the logarithms of a Gaussian policy's deviations, so that saved policies can draw actions as well.

        Args:
            log_std_A: of each number of an action, for the rule `mean`.
        """
        held: Tensor | None = self._buffers["log_std"]
        if held is None:
            self.register_buffer("log_std", log_std_A.detach().clone())
        else:
            held.copy_(log_std_A.detach())

    def normalised(self, observations_BD: Tensor) -> Tensor:
        """What the network sees of raw observations."""
        if not self.spec.normalise:
            return observations_BD
        scaled = (observations_BD.float() - self.get_buffer("shift")) / self.get_buffer("scale")
        return scaled.clamp(-self.spec.clip, self.spec.clip)

    def outputs(self, seen_BD: Tensor) -> Tensor:
        """Outputs of the network for observations that are normalised already, [B, num_outputs]; not for memories."""
        return self.from_features(self.encoder(seen_BD))

    def from_features(self, features_BF: Tensor) -> Tensor:
        """The layers after the encoder."""
        out = self.body(features_BF)
        if self.value is None:
            return cast("Tensor", out)
        choices = self.spec.actions.num_choices
        advantages_BCQ = out.reshape(out.shape[0], choices, -1)
        values_B1Q = self.value(features_BF)[:, None]
        return cast(
            "Tensor", (values_B1Q + advantages_BCQ - advantages_BCQ.mean(1, keepdim=True)).reshape(out.shape[0], -1)
        )

    def begin(self, num_envs: int) -> Remembered | None:
        """What is remembered before the first step of so many copies: zeros, or nothing without a memory."""
        if self.memory is None:
            return None
        zeros = self.get_buffer("low").new_zeros((1, num_envs, self.spec.lstm))
        return zeros, zeros

    def act(
        self,
        observations_ND: Tensor,
        remembered: Remembered | None,
        starts_N: Tensor | None = None,
        masks_NC: Tensor | None = None,
    ) -> tuple[Tensor, Remembered | None]:
        """One step of N copies: the best actions, and what is remembered after it.

        Args:
            observations_ND: raw.
            remembered: from `begin` or the step before.
            starts_N: bool, copies whose episode begins: they forget; None when none does.
            masks_NC: allowed choices, bool; looked at by a masked policy alone.
        """
        seen_ND = self.normalised(observations_ND)
        if self.memory is None or remembered is None:
            outputs_NO = self.outputs(seen_ND)
        else:
            features_NF = self.encoder(seen_ND)
            after_1NH, remembered = self.memory(features_NF[None], forget(remembered, starts_N))
            outputs_NO = self.from_features(after_1NH[0])
        return self.best(outputs_NO, masks_NC if self.spec.masked else None), remembered

    def best(self, outputs_BO: Tensor, masks_BC: Tensor | None = None) -> Tensor:
        """The action of the rule: [B] int64 for discrete spaces (from the lowest choice on), [B, A] else.

        Args:
            outputs_BO: of the network.
            masks_BC: allowed choices, bool, for the rule `logits`; None when all are.
        """
        if masks_BC is not None:
            outputs_BO = outputs_BO.masked_fill(~masks_BC, -torch.inf)
        actions, rule = self.spec.actions, self.spec.rule
        if rule == "quantiles":
            outputs_BO = outputs_BO.reshape(outputs_BO.shape[0], actions.num_choices, -1).mean(dim=2)
        if rule == "squashed":
            low, high = self.get_buffer("low"), self.get_buffer("high")
            return low + 0.5 * (torch.tanh(outputs_BO) + 1.0) * (high - low)
        if rule == "mean":
            return torch.clamp(outputs_BO, self.get_buffer("low"), self.get_buffer("high"))
        parts = [part.argmax(dim=1) for part in torch.split(outputs_BO, list(actions.sizes), dim=1)]
        return parts[0] if actions.kind == "discrete" else torch.stack(parts, dim=1)

    def forward(self, observations_BD: Tensor) -> Tensor:
        """The best action for raw observations, as `ActionLayout` says; choices count from 0."""
        return self.best(self.outputs(self.normalised(observations_BD)))


def forget(remembered: Remembered, starts_N: Tensor | None) -> Remembered:
    """Zeros where an episode begins; hidden state and cell are [1, N, H]."""
    if starts_N is None:
        return remembered
    kept_N1 = ~starts_N[:, None]
    return remembered[0] * kept_N1, remembered[1] * kept_N1


def parameter_count(module: nn.Module) -> int:
    """Numbers that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
