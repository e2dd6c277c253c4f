"""Decision functions of every rule and kind of space, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from galley.data.environments.layout import action_layout, observation_layout
from galley.models.control.decision import Decision, DecisionSpec, Rule
from galley.models.control.spec import NetworkSpec

INF = float("inf")

OBSERVED: Mapping[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-INF, INF, (5,), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "image": spaces.Box(0, 255, (3, 36, 40), np.uint8),
    "image-last": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "small-image": spaces.Box(0, 255, (8, 9, 3), np.uint8),
    "discrete": spaces.Discrete(6, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 4], start=[1, -1]),
    "switches": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        {
            "goal": spaces.Box(-1, 1, (2,), np.float32),
            "place": spaces.Discrete(3),
            "view": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        }
    ),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2, 2), np.float32))),
}
ACTED: Mapping[str, tuple[Rule, spaces.Space[Any]]] = {
    "logits": ("logits", spaces.Discrete(4)),
    "logits-from-3": ("logits", spaces.Discrete(4, start=3)),
    "logits-multi": ("logits", spaces.MultiDiscrete([2, 3, 4], start=[0, 5, -2])),
    "logits-table": ("logits", spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]))),
    "logits-switches": ("logits", spaces.MultiBinary(3)),
    "mean": ("mean", spaces.Box(np.array([-0.1, -INF], np.float32), np.array([0.1, INF], np.float32))),
    "squashed": (
        "squashed",
        spaces.Box(np.array([[-2, 0], [1, -1]], np.float32), np.array([[2, 3], [4, 1]], np.float32)),
    ),
    "values": ("values", spaces.Discrete(3)),
    "values-dueling": ("values", spaces.Discrete(3)),
    "quantiles": ("quantiles", spaces.Discrete(3)),
    "quantiles-dueling": ("quantiles", spaces.Discrete(3)),
}


def decision(observed: str, acted: str, *, seed: int = 0, lstm: int = 0) -> Decision:
    """A decision function with random weights and normalisation (of vectors)."""
    rule, space = ACTED[acted]
    observations = observation_layout(OBSERVED[observed])
    normalise = observations.is_vector
    spec = DecisionSpec(
        observations,
        action_layout(space),
        NetworkSpec((16, 8), "relu"),
        rule,
        normalise=normalise,
        quantiles=5 if rule == "quantiles" else 1,
        dueling=acted.endswith("dueling"),
        lstm=lstm,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = Decision(spec)
        for parameter in made.parameters():
            torch.nn.init.normal_(
                parameter, std=0.05 if parameter.dim() < 2 else 0.6 if parameter.numel() < 10_000 else 0.02
            )
        if normalise:
            made.get_buffer("shift").normal_()
            made.get_buffer("scale").uniform_(0.5, 2)
        if rule == "mean":
            made.take_log_std(torch.tensor([-1.0, 0.5]))
    return made.eval()


def observations(observed: str, number: int, seed: int = 0) -> tuple[list[Any], Any]:
    """Observations as the environment gives them: one by one, and stacked as a vector environment gives them."""
    from gymnasium.vector.utils import concatenate, create_empty_array

    space = OBSERVED[observed]
    space.seed(seed)
    single = [space.sample() for _ in range(number)]
    if isinstance(space, spaces.Discrete):
        return single, np.array(single)
    together = create_empty_array(space, number)
    assert together is not None
    return single, concatenate(space, single, together)
