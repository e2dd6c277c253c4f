"""Keep rewards between bounds, where a few huge ones would drown the others. Reported returns are clipped as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from galley.base import GalleyError
from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    import gymnasium


class Config(WrapperConfig):
    """Settings of `clip-reward`."""

    low: float = Field(-1.0, description="smallest reward")
    high: float = Field(1.0, description="largest reward")


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import ClipReward

    if options.low >= options.high:
        raise GalleyError(
            "data-options",
            f"data.options.wrappers.clip-reward: low {options.low} is not below high {options.high}",
            hint="{clip-reward: {low: -1.0, high: 1.0}}",
        )
    return ClipReward(made, options.low, options.high)


WRAPPER = Wrapper("clip-reward", Config, _wrap)
