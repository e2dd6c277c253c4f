"""From what a network says at a position to log p(target): through its head, or from the model's own logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from galley.models.layouts import Face
from galley.models.logprobs import linear_logprobs, logits_logprobs, module_logprobs, transform
from galley.models.network import Inputs, Network

SHARPNESS = 40.0
"""Largest logit of the check, so that a soft cap shows even where an untrained model says almost nothing."""


class Head(Protocol):
    """What turns rows of a network's face into log-probabilities."""

    @property
    def name(self) -> str:
        """For notes."""

    @property
    def face(self) -> Face:
        """The part of the network whose rows it takes."""

    def logprobs(self, rows_NX: Tensor, targets_N: Tensor) -> Tensor:
        """Give log p(target), [N] float32."""


@dataclass(frozen=True)
class HiddenHead:
    """The output embedding on hidden states, with a factor and a soft cap where the family has them."""

    face: Face
    module: nn.Module
    vocab: int
    scale: float = 1.0
    softcap: float = 0.0

    @property
    def name(self) -> str:
        """For notes."""
        factor = f" x {self.scale:g}" if self.scale != 1.0 else ""
        return f"head{factor}{f', soft cap {self.softcap:g}' if self.softcap else ''}"

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits; only the check asks for them."""
        return transform(self.module(hidden).float(), self.scale, self.softcap)

    def logprobs(self, rows_NX: Tensor, targets_N: Tensor) -> Tensor:
        """Give log p(target), without holding all logits."""
        scale, softcap = self.scale, self.softcap
        if type(self.module) is nn.Linear:  # an adapted or quantised head is a subclass, or no Linear at all
            head = self.module
            return linear_logprobs(rows_NX, head.weight, head.bias, targets_N, scale=scale, softcap=softcap)
        return module_logprobs(rows_NX, self.module, targets_N, self.vocab, scale=scale, softcap=softcap)


@dataclass(frozen=True)
class LogitsHead:
    """The model's own logits at the rows that are needed: right for every model, with more memory."""

    face: Face
    name: str = "the model's own logits"

    def logprobs(self, rows_NX: Tensor, targets_N: Tensor) -> Tensor:
        """Give log p(target) of logits."""
        return logits_logprobs(rows_NX, targets_N)


def find_head(network: Network, ids_L: Tensor) -> Head:
    """The cheapest head whose logits are proven equal to the model's own, on a few tokens.

    The input of the model's head is captured, to see that it is the last hidden state and nothing else, and made
    large, to see what is done to large logits.

    Args:
        network: the model, in evaluation mode.
        ids_L: a few token ids.
    """
    if network.body is None or network.head is None:
        return LogitsHead(network.logits)
    inputs = Inputs(ids_L[None])
    hidden_LH = network.hidden(inputs)[0]
    if hidden_LH.dtype != next(network.head.parameters()).dtype:  # 4-bit heads, and models that cast in between
        return LogitsHead(network.logits)
    raw_LV = network.head(hidden_LH)
    factor = SHARPNESS / raw_LV.float().abs().max().clamp(min=1e-6).item()
    captured: list[Tensor] = []

    def sharpen(module: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        captured.append(args[0])
        return (args[0] * factor,)

    hook = network.head.register_forward_pre_hook(sharpen)
    try:
        truth_LV = network.logits(inputs)[0].float()
    finally:
        hook.remove()
    if len(captured) == 1 and torch.equal(captured[0][0], hidden_LH):
        for scale, softcap in _described(network.config):
            head = HiddenHead(network.hidden, network.head, raw_LV.shape[-1], scale, softcap)
            mine_LV = head.logits(hidden_LH * factor)
            if (mine_LV - truth_LV).abs().max() <= _tolerance(raw_LV.dtype) * truth_LV.abs().max():
                return head
    return LogitsHead(network.logits)


def _tolerance(dtype: torch.dtype) -> float:
    """Relative error allowed: the model may scale in its own precision where this file uses float32."""
    return 4 * torch.finfo(dtype).eps


def _described(config: Any) -> Iterator[tuple[float, float]]:
    """(factor, soft cap) on logits that the config speaks of, most specific first, ending with none."""
    said = config.to_dict()
    factors = [float(said[name]) for name in ("logit_scale", "lm_head_multiplier") if _number(said.get(name))]
    factors += [1 / float(said[name]) for name in ("logits_scaling",) if _number(said.get(name))]
    names = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
    caps = [float(said[name]) for name in names if _number(said.get(name))]
    for softcap in (*caps, 0.0):
        for scale in (*factors, 1.0):
            yield scale, softcap


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
