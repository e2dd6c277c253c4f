"""One environment as the recipe asks for it: made by its reference, with the wrappers around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from galley.base import GalleyError

if TYPE_CHECKING:
    import gymnasium

    from galley.data.environments.base import EnvironmentSettings


def make_single(settings: EnvironmentSettings, *, render: bool = False) -> gymnasium.Env[Any, Any]:
    """One environment, not yet reset.

    Args:
        settings: `num_envs`, `vector` and `workers` are not looked at.
        render: make it able to draw pictures (`render()` gives an array [height, width, 3]).

    Raises:
        GalleyError: those of `make_environment`; `data-options` for wrappers that do not exist, before anything is
            made; `environment-unsupported` for wrappers that this environment cannot have.
    """
    from galley.data.environments.registered import make_environment
    from galley.data.environments.wrappers import chosen_wrappers

    wrappers = chosen_wrappers(settings.wrappers or {})
    kwargs = dict(settings.kwargs or {})
    for wrapper, options in wrappers:
        for key, value in wrapper.needs(options).items():
            if kwargs.setdefault(key, value) != value:
                raise GalleyError(
                    "data-options",
                    f"data.options.wrappers.{wrapper.name} needs the environment's {key} to be {value!r}, "
                    f"data.options.kwargs says {kwargs[key]!r}",
                    hint=f"leave {key} out of data.options.kwargs",
                )
    made = make_environment(settings.reference, kwargs, render=render)
    try:
        for wrapper, options in wrappers:
            made = wrapper.wrap(made, options)
    except Exception:
        made.close()
        raise
    return made
