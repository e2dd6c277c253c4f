"""What `data:` names for an agent: an environment, or stored episodes with or without one to be judged in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.options import environment_settings

if TYPE_CHECKING:
    from galley.data.environments import Environments
    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.data.episodes import StoredEpisodes

_SETTINGS = ("kwargs", "wrappers", "observe", "vector", "workers")
"""Options of an environment, beside which stored episodes have their own."""


@dataclass(frozen=True)
class OpenWorld:
    """What there is to act in or to learn from.

    Args:
        observations, actions: layouts.
        settings: of the environment, with one copy; None when there are stored episodes without one.
        episodes: stored ones; None when there is only an environment.
    """

    observations: ObservationLayout
    actions: ActionLayout
    settings: EnvironmentSettings | None
    episodes: StoredEpisodes | None

    def copies(self, number: int, *, evaluation: bool = False) -> Environments:
        """That many environments; those of an evaluation stay in this process."""
        assert self.settings is not None
        settings = replace(self.settings, num_envs=number)
        if evaluation and settings.vector == "processes":
            settings = replace(settings, vector="auto")
        return open_environments(settings)


def open_world(reference: str, options: Mapping[str, Any]) -> OpenWorld:
    """Look at the environment, or read the stored episodes.

    Args:
        reference: `data.path` of the recipe.
        options: `data.options`.

    Raises:
        GalleyError: `data-not-found`, `data-options`, those of `open_environments` and `read_episodes`;
            `environment-invalid` when episodes and environment do not belong together.
    """
    settings = evaluation_world(reference, options)
    if is_environment(reference):
        assert settings is not None
        observations, actions = _layouts(settings)
        return OpenWorld(observations, actions, settings, None)
    from galley.data.episodes import read_episodes

    if not Path(reference).exists():
        raise GalleyError(
            "data-not-found",
            f"{reference} does not exist",
            hint="stored episodes are .npz, .jsonl or .parquet, from galley watch RUN --save FILE"
            if Path(reference).suffix
            else f"an environment is named gym:{Path(reference).name}",
        )
    own = {key: value for key, value in options.items() if key not in (*_SETTINGS, "environment")}
    episodes = read_episodes(Path(reference), own)
    if settings is not None:
        episodes = _of_world(episodes, settings, reference)
    return OpenWorld(episodes.observations_layout, episodes.actions_layout, settings, episodes)


def evaluation_world(reference: str, options: Mapping[str, Any]) -> EnvironmentSettings | None:
    """The environment that a policy is played in, with one copy; None when the recipe names none.

    Raises:
        GalleyError: `data-options`.
    """
    if is_environment(reference):
        if "environment" in options:
            raise GalleyError(
                "data-options",
                f"data.options.environment is for stored episodes; data already names {reference}",
                hint="leave it out",
            )
        return environment_settings(reference, options, num_envs=1)
    played_in = options.get("environment")
    if played_in is None:
        return None
    if not isinstance(played_in, str):
        raise GalleyError("data-options", f"data.options.environment: {played_in!r} is no name", hint="gym:ID")
    return environment_settings(
        played_in, {key: value for key, value in options.items() if key in _SETTINGS}, num_envs=1
    )


def is_environment(reference: str) -> bool:
    """Whether the words name an environment, rather than a file of stored episodes."""
    return ":" in reference and not Path(reference).exists()


def _of_world(episodes: StoredEpisodes, settings: EnvironmentSettings, reference: str) -> StoredEpisodes:
    """The episodes with the environment's layouts, where they can be of it."""
    from galley.data.episodes.spaces import Layouts, inside

    world = Layouts(*_layouts(settings))
    stored = Layouts(episodes.observations_layout, episodes.actions_layout)
    if stored == world:
        return episodes
    if episodes.guessed and inside(stored, world):
        return replace(episodes, observations_layout=world.observations, actions_layout=world.actions)
    raise GalleyError(
        "environment-invalid",
        f"data.options.environment: {settings.reference} has other spaces than the episodes in {reference}",
        hint="name the environment that they were played in; then num_actions, action_low and action_high are left out",
    )


def _layouts(settings: EnvironmentSettings) -> tuple[ObservationLayout, ActionLayout]:
    one = open_environments(replace(settings, vector="auto"))
    try:
        return one.observations, one.actions
    finally:
        one.close()
