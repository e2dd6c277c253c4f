"""Cut episodes off after a number of steps: a truncation, never an end of the environment's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    import gymnasium


class Config(WrapperConfig):
    """Settings of `time-limit`."""

    steps: int = Field(ge=1, description="of the environment as it stands inside; an own shorter limit still holds")


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import TimeLimit

    return TimeLimit(made, options.steps)


WRAPPER = Wrapper("time-limit", Config, _wrap)
