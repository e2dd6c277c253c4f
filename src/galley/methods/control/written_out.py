"""The update of small actor-critic perceptrons written out by hand, over numpy arrays and without autograd.

For networks of 64 units a framework's calls cost more than the arithmetic. Here actor and critic lie side by side,
large arrays are allocated once, and each line is one operation of the textbook's backward pass. `ppo_loss` and
`a2c_loss`, with autograd, are the truth: tests compare gradients.

Shapes: 2 networks, B rows, D numbers of an observation, H units, O outputs of the policy, A parts of an action.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn

from galley.models.control.distributions import LOG_SQRT_2PI
from galley.models.control.mlp import Mlp

if TYPE_CHECKING:
    from galley.methods.control.flat_adam import FlatParameters
    from galley.models.control.actor_critic import ActorCritic

    Array = np.ndarray[Any, Any]

_ACTIVATIONS = {"tanh", "relu"}


def can_be_written_out(networks: ActorCritic) -> bool:
    """Whether this file knows the networks: plain numbers in, at least one hidden layer of tanh or relu."""
    spec = networks.decision.spec
    plain = spec.observations.is_vector and not spec.network.source
    return plain and bool(spec.network.hidden) and spec.network.activation in _ACTIVATIONS


def parameter_order(networks: ActorCritic) -> list[nn.Parameter]:
    """Parameters such that the same layers of actor and critic are neighbours in memory."""
    found: list[nn.Parameter] = []
    for actor, critic in zip(_linears(networks.decision.body), _linears(networks.critic), strict=True):
        found += [actor[0], critic[0], actor[1], critic[1]]
    return found if networks.log_std is None else [*found, networks.log_std]


def _linears(body: Mlp) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Weight and bias of each layer."""
    parameters = list(body.parameters())
    return list(zip(parameters[::2], parameters[1::2], strict=True))


class Pieces(NamedTuple):
    """What a loss is made of beside its gradient, over B rows."""

    log_probs: Array
    entropies: Array
    values: Array


class WrittenOut:
    """Forward and backward pass of an actor and a critic.

    Args:
        networks: see `can_be_written_out`.
        flat: their parameters in `parameter_order`.
        num_envs: rows of `outputs`.
    """

    def __init__(self, networks: ActorCritic, flat: FlatParameters, num_envs: int) -> None:
        spec = networks.decision.spec
        self._tanh = spec.network.activation == "tanh"
        self._sizes, self._box = spec.actions.sizes, spec.actions.kind == "box"
        self._widths = (spec.observations.size, *spec.network.hidden)
        self._cut(flat)
        self._allocate(0)
        self._acting = [
            (weight[0].T, bias[0], np.empty((num_envs, bias.shape[2]), np.float32))
            for weight, bias in zip(self._weights, self._biases, strict=True)
        ]
        self._acted = np.empty((num_envs, spec.num_outputs), np.float32)
        self._rows = 0

    def _cut(self, flat: FlatParameters) -> None:
        """Views of the flat parameters and gradients: hidden layers [2, H, D] and [2, 1, H], last layers apart."""
        self._weights: list[Array] = []
        self._biases: list[Array] = []
        self._weight_gradients: list[Array] = []
        self._bias_gradients: list[Array] = []
        data, gradient = flat.data.numpy(), flat.gradient.numpy()
        start = 0
        for fan_in, fan_out in itertools.pairwise(self._widths):
            for array, weights, biases in (
                (data, self._weights, self._biases),
                (gradient, self._weight_gradients, self._bias_gradients),
            ):
                middle = start + 2 * fan_out * fan_in
                weights.append(array[start:middle].reshape(2, fan_out, fan_in))
                biases.append(array[middle : middle + 2 * fan_out].reshape(2, 1, fan_out))
            start += 2 * fan_out * (fan_in + 1)
        self._last = _LastLayers(data, start, self._widths[-1], sum(self._sizes), box=self._box)
        self._last_gradient = _LastLayers(gradient, start, self._widths[-1], sum(self._sizes), box=self._box)

    def _allocate(self, rows: int) -> None:
        """Buffers for so many rows; larger ones come as they are needed."""
        self._room = rows
        self._hidden_room = [np.empty((2, rows, width), np.float32) for width in self._widths[1:]]
        self._back_room = [np.empty((2, rows, width), np.float32) for width in self._widths[1:]]
        self._outputs_room = np.empty((sum(self._sizes), rows), np.float32)

    def outputs(self, seen_ND: Array) -> Array:
        """Outputs of the policy alone, [N, O]; overwritten by the next call."""
        x = seen_ND
        for weight, bias, out in self._acting:
            np.dot(x, weight, out=out)
            x = self._activate(np.add(out, bias, out=out))
        np.dot(x, self._last.actor.T, out=self._acted)
        self._acted += self._last.actor_bias
        return self._acted

    def _forward(self, seen_BD: Array) -> tuple[Array, Array]:
        """Outputs of the policy [O, B] and values [B]; hidden layers are kept for the way back."""
        rows = len(seen_BD)
        if rows > self._room:
            self._allocate(rows)
        self._rows, self._seen = rows, seen_BD
        x = seen_BD[None]
        self._hidden = [room[:, :rows] for room in self._hidden_room]
        for weight, bias, out in zip(self._weights, self._biases, self._hidden, strict=True):
            np.matmul(x, weight.transpose(0, 2, 1), out=out)
            x = self._activate(np.add(out, bias, out=out))
        outputs = np.matmul(self._last.actor, x[0].T, out=self._outputs_room[:, :rows])
        outputs += self._last.actor_bias[:, None]
        values = x[1] @ self._last.critic
        values += self._last.critic_bias
        return outputs, values

    def judge(self, seen_BD: Array, chosen: Array) -> Pieces:
        """Log-probabilities of actions, entropies and values, [B] each; `backward` needs them kept.

        Args:
            seen_BD: observations, normalised already.
            chosen: [B] int64 or [B, A], as drawn.
        """
        outputs, values = self._forward(seen_BD)
        if self._box:
            inverse = np.exp(-self._last.log_std)
            self._errors = (chosen.T - outputs) * inverse[:, None]
            constant = float((self._last.log_std + np.float32(LOG_SQRT_2PI)).sum())
            log_probs = np.einsum("ab,ab->b", self._errors, self._errors) * np.float32(-0.5) - np.float32(constant)
            return Pieces(log_probs, np.full(self._rows, constant + 0.5 * len(inverse), np.float32), values)
        self._chosen = chosen.reshape(self._rows, -1).T
        self._every = np.arange(self._rows)
        self._parts, start = [], 0
        log_probs, entropies = np.zeros(self._rows, np.float32), np.zeros(self._rows, np.float32)
        for number, size in enumerate(self._sizes):
            logs, probs = _log_softmax(outputs[start : start + size])
            entropy = -np.einsum("cb,cb->b", probs, logs)
            self._parts.append((logs, probs, entropy))
            log_probs += logs[self._chosen[number], self._every]
            entropies += entropy
            start += size
        return Pieces(log_probs, entropies, values)

    def values(self, seen_BD: Array) -> Array:
        """Values alone, [B]."""
        return self._forward(seen_BD)[1]

    def backward(self, d_log_probs: Array, d_values: Array, d_entropy: float) -> None:
        """Write the whole gradient, into the flat one, of a loss whose derivatives by its pieces are given.

        Args:
            d_log_probs: by each log-probability, [B].
            d_values: by each value, [B].
            d_entropy: by each entropy, the same for all rows.
        """
        top, last, gradient = self._hidden[-1], self._last, self._last_gradient
        d_outputs = self._through_numbers(d_log_probs, d_entropy) if self._box else None
        if d_outputs is None:
            d_outputs = self._through_choices(d_log_probs, np.float32(d_entropy))
        np.matmul(d_outputs, top[0], out=gradient.actor)
        np.add.reduce(d_outputs, axis=1, out=gradient.actor_bias)
        np.matmul(d_values, top[1], out=gradient.critic)
        gradient.critic_bias[0] = np.add.reduce(d_values)
        back = self._back_room[-1][:, : self._rows]
        np.matmul(d_outputs.T, last.actor, out=back[0])
        np.multiply(d_values[:, None], last.critic, out=back[1])
        ones = np.ones((1, self._rows), np.float32)
        for layer in reversed(range(len(self._hidden))):
            self._through_activation(back, self._hidden[layer])
            below = self._hidden[layer - 1] if layer else self._seen[None]
            np.matmul(back.transpose(0, 2, 1), below, out=self._weight_gradients[layer])
            np.matmul(ones, back, out=self._bias_gradients[layer])
            if layer:
                back = np.matmul(back, self._weights[layer], out=self._back_room[layer - 1][:, : self._rows])

    def _activate(self, sums: Array) -> Array:
        """In place."""
        done: Array = np.tanh(sums, out=sums) if self._tanh else np.maximum(sums, np.float32(0), out=sums)
        return done

    def _through_activation(self, back: Array, hidden: Array) -> None:
        """Multiply with the derivative, which both activations give from their result; `hidden` is needed no more."""
        if self._tanh:
            back *= np.float32(1) - hidden * hidden
        else:
            back *= hidden > 0

    def _through_choices(self, d_log_probs: Array, d_entropy: np.float32) -> Array:
        """By the logits, [O, B]: d log p_c / d logit_j = [j = c] - p_j and d H / d logit_j = -p_j (log p_j + H)."""
        found = []
        for number, (logs, probs, entropy) in enumerate(self._parts):
            if d_entropy:
                part = (logs + entropy) * -d_entropy
                part -= d_log_probs
                part *= probs
            else:
                part = probs * -d_log_probs
            part[self._chosen[number], self._every] += d_log_probs
            found.append(part)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _through_numbers(self, d_log_probs: Array, d_entropy: float) -> Array:
        """By the means, [A, B], and by the logarithms of standard deviations: error^2 - 1, and 1 for the entropy."""
        squares = np.einsum("ab,ab,b->a", self._errors, self._errors, d_log_probs)
        d_log_std = squares - np.add.reduce(d_log_probs) + np.float32(d_entropy * self._rows)
        self._last_gradient.log_std[...] = d_log_std
        d_outputs: Array = self._errors * d_log_probs
        d_outputs *= np.exp(-self._last.log_std)[:, None]
        return d_outputs


class _LastLayers:
    """Views of the last layers in a flat array that begin at `start`, and of the standard deviations."""

    def __init__(self, flat: Array, start: int, width: int, outputs: int, *, box: bool) -> None:
        ends = np.cumsum([start, outputs * width, width, outputs, 1, outputs if box else 0])
        parts = [flat[a:b] for a, b in itertools.pairwise(ends)]
        self.actor = parts[0].reshape(outputs, width)
        self.critic, self.actor_bias, self.critic_bias, self.log_std = parts[1:]


def _log_softmax(logits_CB: Array) -> tuple[Array, Array]:
    """Log-probabilities and probabilities of choices, [C, B]."""
    logs: Array = logits_CB - np.maximum.reduce(logits_CB, axis=0)
    probs = np.exp(logs)
    sums = np.add.reduce(probs, axis=0)
    probs /= sums
    logs -= np.log(sums)
    return logs, probs


def ppo_gradient(
    written: WrittenOut,
    batch: Mapping[str, Array],
    *,
    clip_range: float,
    value_clip_range: float | None,
    entropy_coefficient: float,
    value_coefficient: float,
    highest_kl: float | None,
) -> dict[str, float] | None:
    """The gradient of `ppo_loss`, written into the flat one; and its metrics.

    Returns:
        Metrics as of `ppo_loss`; None, and no gradient, when the policy has moved further than `highest_kl`.
    """
    advantages, returns = batch["advantages"], batch["returns"]
    number = len(advantages)
    log_probs, entropies, values = written.judge(batch["observations"], batch["actions"])
    log_ratios = log_probs - batch["log_probs"]
    ratios = np.exp(log_ratios)
    approx_kl = float(np.add.reduce(ratios - 1 - log_ratios)) / number
    if highest_kl is not None and approx_kl > highest_kl:
        return None
    free = ratios * advantages
    clipped = np.minimum(np.maximum(ratios, np.float32(1 - clip_range)), np.float32(1 + clip_range))
    outside = clipped != ratios
    clipped *= advantages
    smaller = np.minimum(free, clipped)
    d_log_probs = np.where(free <= clipped, free, np.float32(0))
    d_log_probs *= np.float32(-1 / number)
    errors = values - returns
    d_values = errors * np.float32(2 * value_coefficient / number)
    if value_clip_range is not None:
        moved = values - batch["values"]
        kept = np.clip(moved, -value_clip_range, value_clip_range)
        errors = batch["values"] + kept - returns
        d_values = np.where(kept == moved, errors * np.float32(2 * value_coefficient / number), np.float32(0))
    written.backward(d_log_probs, d_values, -entropy_coefficient / number)
    policy_loss, value_loss = -float(np.add.reduce(smaller)) / number, float(np.dot(errors, errors)) / number
    entropy = float(np.mean(entropies))
    return {
        "loss": policy_loss - entropy_coefficient * entropy + value_coefficient * value_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": approx_kl,
        "clip_fraction": float(np.count_nonzero(outside)) / number,
    }


def a2c_gradient(
    written: WrittenOut, batch: Mapping[str, Array], *, entropy_coefficient: float, value_coefficient: float
) -> dict[str, float]:
    """The gradient of `a2c_loss`, written into the flat one; and its metrics."""
    advantages, returns = batch["advantages"], batch["returns"]
    number = len(advantages)
    log_probs, entropies, values = written.judge(batch["observations"], batch["actions"])
    errors = values - returns
    written.backward(
        advantages * np.float32(-1 / number),
        errors * np.float32(2 * value_coefficient / number),
        -entropy_coefficient / number,
    )
    policy_loss = -float(np.dot(advantages, log_probs)) / number
    value_loss, entropy = float(np.dot(errors, errors)) / number, float(np.mean(entropies))
    return {
        "loss": policy_loss - entropy_coefficient * entropy + value_coefficient * value_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
    }


def chunks(rows: int, size: int) -> Sequence[slice]:
    """Slices that cover so many rows."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
