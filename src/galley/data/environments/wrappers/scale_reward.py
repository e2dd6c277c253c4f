"""Multiply rewards by a number. Reported returns are scaled as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    import gymnasium


class Config(WrapperConfig):
    """Settings of `scale-reward`."""

    factor: float = Field(gt=0, description="that each reward is multiplied by")


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import TransformReward

    factor = options.factor
    return TransformReward(made, lambda reward: float(reward) * factor)


WRAPPER = Wrapper("scale-reward", Config, _wrap)
