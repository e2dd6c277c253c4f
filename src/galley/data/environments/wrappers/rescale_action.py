"""Let actions run from -1 to 1 (or other bounds), whatever the environment's own bounds are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from galley.base import GalleyError
from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    import gymnasium


class Config(WrapperConfig):
    """Settings of `rescale-action`."""

    low: float = Field(-1.0, description="smallest number of an action")
    high: float = Field(1.0, description="largest number of an action")


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    from gymnasium import spaces
    from gymnasium.wrappers import RescaleAction

    space = made.action_space
    if not isinstance(space, spaces.Box) or not np.isfinite([space.low, space.high]).all():
        raise GalleyError(
            "environment-unsupported",
            f"data.options.wrappers.rescale-action: actions of the space {space} have no bounds to rescale",
            hint="leave it out",
        )
    if options.low >= options.high:
        raise GalleyError(
            "data-options",
            f"data.options.wrappers.rescale-action: low {options.low} is not below high {options.high}",
            hint="{rescale-action: {low: -1.0, high: 1.0}}",
        )
    kind = space.dtype.type
    return RescaleAction(made, kind(options.low), kind(options.high))


WRAPPER = Wrapper("rescale-action", Config, _wrap)
