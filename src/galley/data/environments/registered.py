"""From the words in a recipe to one environment: Gymnasium's registry, a factory in a module, or one in a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError

if TYPE_CHECKING:
    import gymnasium

_PACKAGES = {"ALE/": ("ale_py", "atari"), "MiniGrid-": ("minigrid", "minigrid"), "BabyAI-": ("minigrid", "minigrid")}
"""How ids of a package begin, the module that registers them, and our extra that installs it."""


def make_environment(
    reference: str, kwargs: Mapping[str, Any] | None = None, *, render: bool = False
) -> gymnasium.Env[Any, Any]:
    """One environment, not yet reset.

    Args:
        reference: `gym:ID`, `module:factory` or `file.py:factory`; a factory is anything that, called with `kwargs`,
            gives a Gymnasium environment.
        kwargs: for its constructor.
        render: make it able to draw pictures (`render()` gives an array [height, width, 3]).

    Raises:
        GalleyError: `data-not-found` for names that do not exist, `package-missing`, `environment-failed` when the
            constructor raises.
    """
    scheme, _, name = reference.partition(":")
    options = dict(kwargs or {})
    if render:
        options["render_mode"] = "rgb_array"
    if scheme == "gym":
        return _registered(name, options)
    factory = find_factory(scheme, name, reference)
    try:
        made = factory(**options)
    except (Exception, SystemExit) as error:
        raise _failed(reference, error, bool(kwargs)) from error
    import gymnasium

    if not isinstance(made, gymnasium.Env):
        raise GalleyError(
            "environment-invalid",
            f"{reference} gives {type(made).__name__!r}, which is no Gymnasium environment",
            hint="derive it from gymnasium.Env",
        )
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(made, name, None), gymnasium.Space):
            raise GalleyError(
                "environment-invalid",
                f"{reference}: its {name} is no space of Gymnasium",
                hint=f"set self.{name} in the constructor, such as gymnasium.spaces.Discrete(2)",
            )
    return made


def import_gymnasium() -> Any:
    """The library.

    Raises:
        GalleyError: `package-missing`.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise GalleyError(
            "package-missing", "task control needs the package gymnasium", hint="pip install 'galley-train[control]'"
        ) from error
    return gymnasium


def register_packages(name: str) -> None:
    """Import the package whose ids begin like this one, so that Gymnasium knows them.

    Raises:
        GalleyError: `package-missing`.
    """
    gymnasium = import_gymnasium()
    for beginning, (module, extra) in _PACKAGES.items():
        if name.startswith(beginning):
            try:
                gymnasium.register_envs(importlib.import_module(module))
            except ImportError as error:
                raise _missing(name, extra) from error


def _registered(name: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    gymnasium = import_gymnasium()
    register_packages(name)
    try:
        made = gymnasium.make(name, disable_env_checker=True, **options)
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound, gymnasium.error.VersionNotFound) as error:
        import difflib

        near = difflib.get_close_matches(name, gymnasium.registry, n=1)
        hint = f"did you mean gym:{near[0]}?" if near else "python -c 'import gymnasium; gymnasium.pprint_registry()'"
        raise GalleyError("data-not-found", f"gym:{name}: there is no such environment", hint=hint) from error
    except gymnasium.error.DeprecatedEnv as error:
        raise GalleyError("data-not-found", f"gym:{name}: {error}", hint="name the newer version") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(name, _extra_of(str(error))) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"gym:{name}", error, bool(options)) from error
    return _without_order_check(made)


def _without_order_check(made: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Take out the layer that asks whether `reset` came first, which every step would pay for: here it always does."""
    from gymnasium import wrappers

    if isinstance(made, wrappers.OrderEnforcing):
        return made.env
    inner = getattr(made, "env", None)
    if isinstance(made, wrappers.TimeLimit) and isinstance(inner, wrappers.OrderEnforcing):
        made.env = inner.env
    return made


def _extra_of(message: str) -> str:
    return next((extra for extra in ("box2d", "mujoco", "atari", "minigrid") if extra in message.lower()), "control")


def _missing(name: str, extra: str) -> GalleyError:
    return GalleyError(
        "package-missing",
        f"gym:{name}: a package that this environment is made with is not installed",
        hint=f"pip install 'galley-train[{extra}]'",
    )


def _failed(reference: str, error: BaseException, has_options: bool) -> GalleyError:
    return GalleyError(
        "environment-failed",
        f"{reference} could not be made: {type(error).__name__}: {error}",
        hint="check data.options.kwargs"
        if has_options
        else "arguments of its constructor stand in data.options.kwargs",
    )


def find_factory(module_name: str, attribute: str, reference: str) -> Callable[..., Any]:
    """The factory of `module:name` or `file.py:name`. This runs the user's own code, which the recipe names.

    Raises:
        GalleyError: `data-not-found`, `environment-failed` when importing raises.
    """
    try:
        module = _file_module(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    except GalleyError:
        raise
    except ModuleNotFoundError as error:
        if not module_name.endswith(".py") and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise GalleyError(
                "data-not-found",
                f"{reference}: there is no module {error.name!r}",
                hint="environments are gym:ID, module:factory or file.py:factory",
            ) from error
        raise GalleyError(
            "package-missing", f"{reference} imports {error.name!r}, which is not installed", hint="install it"
        ) from error
    except (Exception, SystemExit) as error:
        raise GalleyError(
            "environment-failed",
            f"importing {module_name} raised {type(error).__name__}: {error}",
            hint="correct it; python shows more",
        ) from error
    factory: Callable[..., Any] | None = getattr(module, attribute, None)
    if factory is None or not callable(factory):
        raise GalleyError("data-not-found", f"{reference}: {module_name} has no function or class {attribute!r}")
    return factory


def _file_module(file: str) -> ModuleType:
    """Run a file; its neighbours can be imported from it, as when Python runs it."""
    path = Path(file).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise GalleyError(
            "data-not-found", f"there is no file {file}", hint="environments are gym:ID or file.py:factory"
        )
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
