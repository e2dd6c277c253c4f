"""How large networks are, counted without making them, for plans."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from galley.data.environments.layout import ObservationLayout
    from galley.methods.control.base import WorldFacts

_IMAGE_FEATURES = 512
_LARGE = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
_SMALL = ((2, 1, 16), (2, 1, 32))


def perceptron_numbers(sizes: Sequence[int]) -> int:
    """Weights and biases of linear layers, e.g. of (4, 64, 64, 2)."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(sizes))


def encoder_numbers(layout: ObservationLayout) -> tuple[int, int]:
    """Features that an encoder gives, and the numbers that it is made of; see `models.control.encoder`."""
    features = numbers = 0
    for leaf in layout.leaves:
        if leaf.kind != "image":
            features += leaf.num_features
            continue
        first = leaf.shape[0] <= leaf.shape[2] and leaf.shape[0] <= 16
        height, width, channels = (leaf.shape[1], leaf.shape[2], leaf.shape[0]) if first else leaf.shape
        for kernel, stride, filters in _LARGE if min(height, width) >= 36 else _SMALL:
            numbers += (channels * kernel * kernel + 1) * filters
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            channels = filters
        numbers += (height * width * channels + 1) * _IMAGE_FEATURES
        features += _IMAGE_FEATURES
    return features, numbers


def decision_numbers(facts: WorldFacts, outputs: int, more_inputs: int = 0) -> int:
    """Of an encoder and the layers after it.

    Args:
        facts: layouts and hidden layers. A network of one's own is counted as the usual encoder.
        outputs: of the last layer.
        more_inputs: beside the features, such as an action.
    """
    features, numbers = encoder_numbers(facts.observations)
    return numbers + perceptron_numbers((features + more_inputs, *facts.network.hidden, outputs))


def adam_bytes(numbers: int) -> int:
    """Both moments and the gradient of so many float32 numbers."""
    return 12 * numbers


def on_policy_bytes(facts: WorldFacts, steps: int) -> dict[str, int]:
    """Memory of an on-policy method.

    Args:
        facts: of the world.
        steps: of a rollout, over all copies.
    """
    features, _ = encoder_numbers(facts.observations)
    numbers = decision_numbers(facts, facts.actions.num_choices) + perceptron_numbers(
        (features, *facts.network.hidden, 1)
    )
    one = facts.observations.size * (1 if facts.observations.dtype == "uint8" else 4)
    return {
        # observations as collected, raw, and as rows in random order; five numbers and the action of each
        "rollout": steps * (3 * one + 8 * facts.actions.size + 4 * facts.actions.num_choices + 2 * 5 * 4),
        "networks": 4 * numbers,
        "optimizer": adam_bytes(numbers),
    }
