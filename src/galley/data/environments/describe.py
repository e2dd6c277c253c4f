"""What a person wants to know of an environment before training in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.data.environments import open_environments
from galley.data.environments.base import Environments, EnvironmentSettings
from galley.data.environments.samples import random_actions

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, Leaf

    Array = np.ndarray[Any, Any]

_SECONDS = 0.5
_SHOWN = 8


@dataclass(frozen=True)
class Described:
    """Facts, most of them in words.

    Args:
        reference: of the environment.
        observations: one line for each part.
        actions: in words.
        time_limit: steps after which episodes are truncated; None when nothing says so.
        rewards: smallest and largest that random actions met.
        vector: `native`, `serial`, `processes` or `agents`: how copies are stepped.
        masked: whether it says which actions are allowed.
        steps_per_second: of all copies together with random actions, on this machine, now.
        example: one observation, flat; the first numbers.
    """

    reference: str
    observations: tuple[str, ...]
    actions: str
    time_limit: int | None
    rewards: tuple[float, float]
    vector: str
    masked: bool
    steps_per_second: float
    example: tuple[float, ...]

    def lines(self) -> list[str]:
        """For a terminal."""
        limit = "none that is known" if self.time_limit is None else f"{self.time_limit:,} steps"
        shown = ", ".join(f"{number:g}" for number in self.example)
        return [
            f"environment   {self.reference}",
            *(f"observation   {line}" for line in self.observations),
            f"actions       {self.actions}" + (", masked" if self.masked else ""),
            f"time limit    {limit}",
            f"rewards       from {self.rewards[0]:g} to {self.rewards[1]:g} with random actions",
            f"speed         {self.steps_per_second:,.0f} steps/s with random actions ({self.vector})",
            f"example       {shown}" + (", ..." if len(self.example) == _SHOWN else ""),
        ]


def describe(settings: EnvironmentSettings, *, seconds: float = _SECONDS) -> Described:
    """Open the environment, play random actions for a moment, and say what was seen.

    Args:
        settings: of the environment.
        seconds: of playing.

    Raises:
        GalleyError: those of `open_environments` and of stepping.
    """
    opened = open_environments(settings)
    try:
        first = opened.reset(0)
        low, high, speed = _played(opened, seconds)
        return Described(
            settings.reference,
            tuple(_leaf_words(leaf) for leaf in opened.observations.leaves),
            _action_words(opened.actions),
            _time_limit(settings),
            (low, high),
            type(opened).__name__.lower(),
            opened.action_masks() is not None,
            speed,
            tuple(float(number) for number in first[0, :_SHOWN]),
        )
    finally:
        opened.close()


def _played(opened: Environments, seconds: float) -> tuple[float, float, float]:
    random = np.random.default_rng(0)
    low, high, steps = np.inf, -np.inf, 0
    begun = time.perf_counter()
    spent = 0.0
    while steps == 0 or spent < seconds:
        step = opened.step(random_actions(opened.actions, opened.num_envs, random, opened.action_masks()))
        real = step.rewards if step.idle is None else step.rewards[~step.idle]
        if len(real):
            low, high = min(low, float(real.min())), max(high, float(real.max()))
        steps += len(real)
        spent = time.perf_counter() - begun
    return low, high, steps / spent


def _leaf_words(leaf: Leaf) -> str:
    name = f"{leaf.name}: " if leaf.name else ""
    shape = " x ".join(str(number) for number in leaf.shape)
    if leaf.kind == "image":
        return f"{name}image {shape}, bytes"
    if leaf.kind == "discrete":
        return f"{name}category, one of {' x '.join(str(size) for size in leaf.sizes)}"
    return f"{name}{shape or 1} numbers"


def _action_words(actions: ActionLayout) -> str:
    if actions.kind == "discrete":
        return f"one of {actions.sizes[0]}"
    if actions.kind == "multi-discrete":
        return f"{actions.size} choices, of {' x '.join(str(size) for size in actions.sizes)}"
    if actions.kind == "binary":
        return f"{actions.size} switches"
    return f"{actions.size} numbers, from {min(actions.low):g} to {max(actions.high):g}"


def _time_limit(settings: EnvironmentSettings) -> int | None:
    """The shortest of the layers that cut episodes off."""
    if settings.reference.startswith("pettingzoo:"):
        return None
    from gymnasium import Wrapper
    from gymnasium.wrappers import TimeLimit

    from galley.data.environments.single import make_single

    outer = made = make_single(replace(settings, num_envs=1))
    limits = []
    try:
        while isinstance(made, Wrapper):
            if isinstance(made, TimeLimit):
                limits.append(int(made._max_episode_steps))
            made = made.env
    finally:
        outer.close()
    return min(limits, default=None)
