"""Several agents in one world (PettingZoo's parallel environments): each agent is a row, all share one policy.

`pettingzoo:PACKAGE/NAME` names a module of PettingZoo (`pettingzoo:sisl/pursuit_v4`; `mpe/...` is the package mpe2);
`pettingzoo:module:factory` one of the user's own. Rows are whole worlds one after the other, in each the agents in the
order of `possible_agents`; `num_envs` rows are asked for and the next multiple of the number of agents is made. An
agent that is out while the others play on is an idle row.

Policies of their own: `split(agents, groups)` gives one `Environments` for each group of agents. Whoever calls it makes
one learner for each and runs each in a thread of its own; `step` of a group waits until all groups have acted, so
results do not depend on which thread is faster. All must make the same number of steps; a group that is closed early
ends the others with an error. State is taken from the whole world, between rounds, when no thread is inside `step`.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import EnvironmentSettings, Episode, Step
from galley.data.environments.layout import action_layout, observation_layout
from galley.data.environments.rows import Acts, Rows, row_not_finite
from galley.data.environments.seeds import episode_seed

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class Agents:
    """Worlds of several agents; a row is one agent of one world.

    Args:
        settings: `reference`, `num_envs` (rows), `kwargs` and `observe`.

    Raises:
        GalleyError: `data-not-found`, `package-missing`, `environment-failed`, `environment-unsupported` for agents
            with different spaces, `data-options` for what such worlds cannot have.
    """

    def __init__(self, settings: EnvironmentSettings) -> None:
        if settings.wrappers or settings.vector in ("processes", "native"):
            raise GalleyError(
                "data-options",
                "data.options: wrappers and vector are for environments of one agent",
                hint="wrap the world in a factory of your own, pettingzoo:module:factory",
            )
        make = _factory(settings)
        self._worlds = [make()]
        self.agents: tuple[str, ...] = tuple(self._worlds[0].possible_agents)
        self._worlds += [make() for _ in range(1, math.ceil(settings.num_envs / len(self.agents)))]
        self.num_envs = len(self._worlds) * len(self.agents)
        one = self._worlds[0]
        _check_equal(one, self.agents)
        self.observations = observation_layout(one.observation_space(self.agents[0]), observe=settings.observe)
        self.actions = action_layout(one.action_space(self.agents[0]))
        self._acts, self._rows = Acts(self.actions), Rows(self.observations, self.num_envs)
        self._seed = 0
        self._episode = [0] * len(self._worlds)
        self._played: list[list[Array]] = [[] for _ in self._worlds]
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._now = self._rows.new()

    def reset(self, seed: int) -> Array:
        """First observations of all agents."""
        self._seed = seed
        self._now = self._rows.new()
        for world in range(len(self._worlds)):
            self._begin(world, 0)
        return self._now

    def step(self, actions: Array) -> Step:
        """Every agent that is in acts; where none is left the world begins anew."""
        before, self._now = self._now, self._rows.new()
        self._now[...] = before
        number = self.num_envs
        rewards = np.zeros(number, np.float32)
        terminated, truncated, idle = (np.zeros(number, np.bool_) for _ in range(3))
        ended: list[Episode] = []
        chosen, natives = self._acts.split(actions)
        size, finals = len(self.agents), None
        for world, made in enumerate(self._worlds):
            rows = slice(world * size, (world + 1) * size)
            self._played[world].append(np.array(chosen[rows]))
            self._act(world, natives[rows], (rewards[rows], terminated[rows], truncated[rows], idle[rows]))
            for row in np.flatnonzero(terminated[rows] | truncated[rows]).tolist():
                own = world * size + row
                ended.append(Episode(float(self._returns[own]), int(self._lengths[own]), own))
            if not made.agents:
                finals = self._now.copy() if finals is None else finals
                finals[rows] = self._now[rows]
                self._begin(world, self._episode[world] + 1)
            elif finals is not None:
                finals[rows] = self._now[rows]
        truncated &= ~terminated
        return Step(self._now, rewards, terminated, truncated, finals, idle if idle.any() else None, ended)

    def action_masks(self) -> Array | None:
        """None: masks of such worlds stand inside observations, and are not read."""
        return None

    def state(self) -> Mapping[str, Any]:
        """Seed and actions of each running episode."""
        import torch

        played = [torch.as_tensor(np.array(actions)) for actions in self._played]
        return {"seed": self._seed, "episodes": list(self._episode), "actions": played}

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Play the running episodes again up to where they were."""
        self._seed = state["seed"]
        self._now = self._rows.new()
        unused = tuple(np.zeros(len(self.agents), kind) for kind in (np.float32, np.bool_, np.bool_, np.bool_))
        for world, (episode, actions) in enumerate(zip(state["episodes"], state["actions"], strict=True)):
            self._begin(world, episode)
            for chosen in actions.numpy():
                self._played[world].append(chosen.copy())
                self._act(world, self._acts.split(chosen)[1], unused)
        return self._now

    def close(self) -> None:
        """Close every world."""
        for made in self._worlds:
            made.close()

    def _begin(self, world: int, episode: int) -> None:
        size = len(self.agents)
        self._episode[world], self._played[world] = episode, []
        self._returns[world * size : (world + 1) * size] = 0
        self._lengths[world * size : (world + 1) * size] = 0
        try:
            values, _ = self._worlds[world].reset(seed=episode_seed(self._seed, world, episode))
        except Exception as error:
            raise _failed(world, f"reset of episode {episode}", error) from error
        self._put(world, values)

    def _act(self, world: int, natives: Any, out: tuple[Array, ...]) -> None:
        """One step of one world; `out` takes rewards, terminated, truncated and idle of its agents."""
        made = self._worlds[world]
        present = set(made.agents)
        acting = {agent: natives[place] for place, agent in enumerate(self.agents) if agent in present}
        try:
            values, rewards, overs, cuts, _ = made.step(acting)
        except Exception as error:
            raise _failed(world, f"step {len(self._played[world])}", error) from error
        for place, agent in enumerate(self.agents):
            if agent not in present:
                out[3][place] = True
                continue
            reward = float(rewards[agent])
            if not math.isfinite(reward):
                raise GalleyError("environment-invalid", f"world {world}: the reward of {agent} is {reward}")
            row = world * len(self.agents) + place
            self._returns[row] += reward
            self._lengths[row] += 1
            out[0][place], out[1][place], out[2][place] = reward, bool(overs[agent]), bool(cuts[agent])
        self._put(world, values)

    def _put(self, world: int, values: Mapping[str, Any]) -> None:
        for place, agent in enumerate(self.agents):
            if agent in values:
                self._rows.put(world * len(self.agents) + place, values[agent])
        row = row_not_finite(self._now)
        if row is not None:
            name = self.agents[row % len(self.agents)]
            raise GalleyError(
                "environment-invalid",
                f"world {row // len(self.agents)}: the observation of {name} holds "
                f"{self._now[row][~np.isfinite(self._now[row])][0]}",
                hint="observations must be finite numbers",
            )


def _factory(settings: EnvironmentSettings) -> Callable[[], Any]:
    from galley.data.environments.registered import find_factory

    name = settings.reference.partition(":")[2]
    options = dict(settings.kwargs or {})
    if ":" in name:
        module, _, attribute = name.rpartition(":")
        factory = find_factory(module, attribute, settings.reference)
    else:
        factory = _module(name).parallel_env

    def make() -> Any:
        try:
            made = factory(**options)
        except Exception as error:
            raise GalleyError(
                "environment-failed",
                f"{settings.reference} could not be made: {type(error).__name__}: {error}",
                hint="check data.options.kwargs",
            ) from error
        if not hasattr(made, "possible_agents"):
            raise GalleyError(
                "environment-invalid",
                f"{settings.reference} gives {type(made).__name__!r}, which is no parallel environment of PettingZoo",
                hint="derive it from pettingzoo.ParallelEnv",
            )
        return made

    return make


def _module(name: str) -> Any:
    family, _, kind = name.partition("/")
    package = "mpe2" if family == "mpe" else f"pettingzoo.{family}"
    try:
        found = importlib.import_module(f"{package}.{kind}")
    except ModuleNotFoundError as error:
        raise _absent(name, package, error) from error
    if not hasattr(found, "parallel_env"):
        raise GalleyError("environment-unsupported", f"pettingzoo:{name} has no parallel environment")
    return found


def _absent(name: str, package: str, error: ModuleNotFoundError) -> GalleyError:
    if error.name is not None and not f"{package}.{name.partition('/')[2]}".startswith(error.name):
        missing = error.name  # the world is there, what it is made with is not
    elif importlib.util.find_spec(package.partition(".")[0]) is None:
        missing = package.partition(".")[0]
    else:
        return GalleyError("data-not-found", f"pettingzoo:{name}: there is no such world", hint=_near(name, package))
    return GalleyError(
        "package-missing",
        f"pettingzoo:{name}: the package {missing} is not installed",
        hint="pip install 'galley-train[pettingzoo]'",
    )


def _near(name: str, package: str) -> str:
    import difflib
    import pkgutil

    try:
        names = [found.name for found in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    except ModuleNotFoundError:
        return "worlds are named pettingzoo:FAMILY/NAME, such as pettingzoo:mpe/simple_spread_v3"
    family, _, kind = name.partition("/")
    near = difflib.get_close_matches(kind, names, n=1)
    return f"did you mean pettingzoo:{family}/{near[0]}?" if near else f"there are: {', '.join(sorted(names))}"


def _check_equal(made: Any, agents: tuple[str, ...]) -> None:
    for agent in agents[1:]:
        for kind in ("observation_space", "action_space"):
            own, first = getattr(made, kind)(agent), getattr(made, kind)(agents[0])
            if own != first:
                raise GalleyError(
                    "environment-unsupported",
                    f"agents with one policy need the same {kind}: {agents[0]} has {first}, {agent} has {own}",
                    hint="pad them in a factory of your own, pettingzoo:module:factory",
                )


def _failed(world: int, when: str, error: Exception) -> GalleyError:
    return GalleyError(
        "environment-failed",
        f"world {world} raised at {when}: {type(error).__name__}: {error}",
        hint="correct the environment; galley resume continues from the newest checkpoint",
    )
