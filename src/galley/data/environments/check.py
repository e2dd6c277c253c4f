"""Try one copy before training: what an environment says of itself must be true."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import EnvironmentSettings

if TYPE_CHECKING:
    import gymnasium

    Array = np.ndarray[Any, Any]

_STEPS = 32


@dataclass(frozen=True)
class Checked:
    """What trying showed.

    Args:
        deterministic: whether the same seed and actions gave the same observations and rewards; else a run that is
            resumed goes on from another place than where it stopped.
        notes: what the user should know; empty when all is well.
    """

    deterministic: bool
    notes: tuple[str, ...]


def check_environment(settings: EnvironmentSettings, *, seed: int = 0) -> Checked:
    """Make one copy and play it twice with the same seed and up to 32 sampled actions.

    Args:
        settings: of the environment.
        seed: of the episode and of the actions.

    Raises:
        GalleyError: `environment-invalid` for an observation, reward or end that the environment excludes,
            `environment-failed` when it raises, and those of making it.
    """
    if settings.reference.startswith("pettingzoo:"):
        return _check_agents(settings, seed)
    from galley.data.environments.layout import action_layout, observation_layout
    from galley.data.environments.single import make_single

    made = make_single(settings)
    try:
        observation_layout(made.observation_space, observe=settings.observe)
        action_layout(made.action_space)
        once, again = _trace(made, seed), _trace(made, seed)
    finally:
        made.close()
    return _compared(once, again)


def _compared(once: list[Any], again: list[Any]) -> Checked:
    place = next((i for i, pair in enumerate(zip(once, again, strict=False)) if not _equal(*pair)), None)
    if place is None and len(once) == len(again):
        return Checked(True, ())
    where = "the first observation differs" if place == 0 else f"step {place} differs"
    return Checked(
        False,
        (
            f"the environment is not deterministic: with the same seed and actions {where}, so a run that is resumed "
            "will not go on exactly where it stopped",
        ),
    )


def _trace(made: gymnasium.Env[Any, Any], seed: int) -> list[Any]:
    """First observation, then (observation, reward, terminated, truncated) of each step."""
    made.action_space.seed(seed)
    try:
        value, _ = made.reset(seed=seed)
    except Exception as error:
        raise _failed("reset", error) from error
    _must_fit(made, value, "reset")
    trace: list[Any] = [_kept(value)]
    for number in range(1, _STEPS + 1):
        action = made.action_space.sample()
        try:
            value, reward, over, cut, _ = made.step(action)
        except Exception as error:
            raise _failed(f"step {number} with the action {action!r}, a sample of its action space", error) from error
        _must_fit(made, value, f"step {number}")
        _must_be_reward(reward, over, cut, number)
        trace.append((_kept(value), float(reward), bool(over), bool(cut)))
        if over or cut:
            break
    return trace


def _must_fit(made: gymnasium.Env[Any, Any], value: Any, when: str) -> None:
    if made.observation_space.contains(value):
        return
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", type(value).__name__)
    outside = "" if shape is None else f" (shape {list(shape)}, {kind})"
    raise GalleyError(
        "environment-invalid",
        f"the observation at {when}{outside} is not in the space {made.observation_space}",
        hint="correct the environment's observation_space: its shape, dtype or bounds",
    )


def _must_be_reward(reward: Any, over: Any, cut: Any, number: int) -> None:
    try:
        finite = math.isfinite(float(reward))
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise GalleyError(
            "environment-invalid",
            f"step {number}: the reward is {reward!r}",
            hint="rewards must be finite numbers",
        )
    for name, value in (("terminated", over), ("truncated", cut)):
        if not isinstance(value, (bool, np.bool_)):
            raise GalleyError(
                "environment-invalid",
                f"step {number}: {name} is {value!r}",
                hint="step gives (observation, reward, terminated, truncated, info)",
            )


def _kept(value: Any) -> Any:
    """A copy, since an environment may write its next observation into the same array."""
    import copy

    return copy.deepcopy(value)


def _equal(one: Any, other: Any) -> bool:
    from gymnasium.utils.env_checker import data_equivalence

    return bool(data_equivalence(one, other, exact=True))


def _failed(when: str, error: Exception) -> GalleyError:
    return GalleyError(
        "environment-failed",
        f"the environment raised at {when}: {type(error).__name__}: {error}",
        hint="correct the environment",
    )


def _check_agents(settings: EnvironmentSettings, seed: int) -> Checked:
    from galley.data.environments.pettingzoo import Agents
    from galley.data.environments.samples import random_actions

    agents = Agents(replace(settings, num_envs=1))
    try:
        traces = []
        for _ in range(2):
            random = np.random.default_rng(seed)
            trace: list[Any] = [agents.reset(seed).copy()]
            for _ in range(_STEPS):
                step = agents.step(random_actions(agents.actions, agents.num_envs, random, agents.action_masks()))
                trace.append((step.observations, step.rewards, step.terminated, step.truncated))
            traces.append(trace)
    finally:
        agents.close()
    return _compared(*traces)
