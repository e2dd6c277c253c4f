"""Watch a finished agent: play whole episodes, draw them, keep what was done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from galley import methods, recipe
from galley.base import GalleyError
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.recording import Recording, record, write_recording
from galley.data.worlds import evaluation_world
from galley.methods.control.playing import DecisionPlayer, verdict_seed

if TYPE_CHECKING:
    from galley.models.control.decision import Decision
    from galley.runs import RunFolder

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Watched:
    """What was seen.

    Args:
        returns: of the episodes.
        picture: the recording.
        frames: in it.
    """

    returns: tuple[float, ...]
    picture: Path
    frames: int


def watch(run: RunFolder, *, episodes: int = 1, seed: int | None = None, out: Path | None = None) -> Watched:
    """Play the policy of a run and draw it.

    Args:
        run: finished.
        episodes: how many.
        seed: of the episodes; the verdict's when None.
        out: a `.gif` or `.mp4`; result/watch.gif when None.

    Raises:
        GalleyError: `run-unfinished`; `environment-unsupported` when there is nothing to play in or it cannot be drawn;
            `data-format` for another suffix.
    """
    decision, settings, own = opened(run)
    first = verdict_seed(own) if seed is None else seed
    path = out or run.result / "watch.gif"
    if path.suffix not in (".gif", ".mp4"):
        raise GalleyError("data-format", f"{path}: recordings are .gif or .mp4", hint=f"{path.with_suffix('.gif')}")
    player = DecisionPlayer(decision)
    parts = []
    for number in range(episodes):
        player.begin(1)
        parts.append(record(settings, player.act, episodes=1, seed=first + number))
    whole = Recording(
        tuple(frame for part in parts for frame in part.frames),
        tuple(ret for part in parts for ret in part.returns),
        parts[0].frames_per_second,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_recording(whole, path)
    return Watched(whole.returns, path, len(whole.frames))


def keep_episodes(run: RunFolder, path: Path, *, episodes: int, seed: int | None = None) -> int:
    """Play the policy of a run and write what it did, for `bc`, `iql` or `cql`.

    Args:
        run: finished.
        path: `.npz`, `.jsonl` or `.parquet`; must not exist.
        episodes: how many.
        seed: of the episodes; the verdict's when None.

    Returns:
        Steps that were written.

    Raises:
        GalleyError: as `watch`; `file-exists`.
    """
    from galley.data.episodes import from_environment, write_episodes

    decision, settings, own = opened(run)
    if path.exists():
        raise GalleyError("file-exists", f"{path} exists", hint="name another file")
    environments = open_environments(replace(settings, num_envs=min(episodes, 10)))
    try:
        first = verdict_seed(own) if seed is None else seed
        played = from_environment(environments, DecisionPlayer(decision), episodes, seed=first)
    finally:
        environments.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_episodes(path, played)
    return len(played)


def opened(run: RunFolder) -> tuple[Decision, EnvironmentSettings, int]:
    """Policy, world and seed of a finished run.

    Raises:
        GalleyError: `run-unfinished`, `environment-unsupported`.
    """
    from galley.models.control.results import has_policy, load_policy

    asked = recipe.load(run.path / "recipe.yaml", methods=methods)
    if asked.task != "control":
        raise GalleyError(
            "environment-unsupported", f"the run {run.name} is no agent", hint=f"galley chat {run.name} talks to it"
        )
    if not has_policy(run.result):
        raise GalleyError("run-unfinished", f"the run {run.name} has no policy yet", hint=f"galley resume {run.name}")
    settings = evaluation_world(asked.data.path, asked.data.options)
    if settings is None:
        raise GalleyError(
            "environment-unsupported",
            f"the run {run.name} learned from stored episodes, and no environment was named",
            hint="data.options.environment in its recipe",
        )
    return load_policy(run.result), settings, asked.seed
