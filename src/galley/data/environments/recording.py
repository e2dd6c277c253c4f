"""Pictures of a policy at work: episodes drawn without a screen, as a GIF or an MP4."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import EnvironmentSettings
from galley.data.environments.layout import action_layout, observation_layout
from galley.data.environments.seeds import episode_seed
from galley.data.environments.serial import CONTINUES

if TYPE_CHECKING:
    import gymnasium

    Array = np.ndarray[Any, Any]
    Decide = Callable[[Array, Array | None], Array]

_FRAMES_PER_SECOND = 30
_MOST_FRAMES = 5_000


@dataclass(frozen=True)
class Recording:
    """What was drawn.

    Args:
        frames: each [height, width, 3] bytes; the first of an episode shows its beginning.
        returns: sum of rewards of each episode.
        frames_per_second: as the environment says, else 30.
    """

    frames: tuple[Array, ...]
    returns: tuple[float, ...]
    frames_per_second: int


def record(
    settings: EnvironmentSettings, decide: Decide, *, episodes: int = 1, seed: int = 0, most: int = _MOST_FRAMES
) -> Recording:
    """Play and draw.

    Args:
        settings: of the environment; one copy is made.
        decide: flat observations [1, D] and the allowed choices [1, M] bool, None when all are, to actions [1] or
            [1, A].
        episodes: how many.
        seed: of the episodes, as that of `Environments.reset` for copy 0.
        most: frames, after which drawing and playing stop.

    Raises:
        GalleyError: `environment-unsupported` when the environment draws no pictures, or what draws them is missing;
            `environment-failed` when it raises.
    """
    from galley.data.environments.single import make_single

    if settings.reference.startswith("pettingzoo:"):
        raise GalleyError("environment-unsupported", "worlds of several agents are not recorded")
    _draw_without_screen()
    made = make_single(settings, render=True)
    frames: list[Array] = []
    returns: list[float] = []
    try:
        for episode in range(episodes):
            if len(frames) < most:
                returns.append(_episode(made, settings, decide, episode_seed(seed, 0, episode), frames, most))
        rate = int(made.metadata.get("render_fps") or _FRAMES_PER_SECOND)
    finally:
        made.close()
    return Recording(tuple(frames), tuple(returns), rate)


def write_recording(recording: Recording, path: Path) -> None:
    """Write `.gif` with Pillow, or `.mp4` with imageio-ffmpeg.

    Args:
        recording: with one frame at least.
        path: whose suffix says the kind; written under another name first, so that it is whole or not there.

    Raises:
        GalleyError: `package-missing`, `data-format` for another suffix.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    if path.suffix == ".gif":
        _write_gif(recording, part)
    elif path.suffix == ".mp4":
        _write_mp4(recording, part)
    else:
        raise GalleyError("data-format", f"{path}: recordings are .gif or .mp4", hint=f"{path.with_suffix('.gif')}")
    part.replace(path)


def _episode(
    made: gymnasium.Env[Any, Any],
    settings: EnvironmentSettings,
    decide: Decide,
    seed: int,
    frames: list[Array],
    most: int,
) -> float:
    observations = observation_layout(made.observation_space, observe=settings.observe)
    actions = action_layout(made.action_space)
    row = np.zeros((1, observations.size), observations.dtype)
    ask = made.get_wrapper_attr("action_masks") if made.has_wrapper_attr("action_masks") else None
    try:
        value, _ = made.reset(seed=seed)
        frames.append(_frame(made, settings))
        total, over = 0.0, False
        while not over and len(frames) < most:
            observations.flatten(value, row[0])
            masks = None if ask is None else np.array(ask(), np.bool_).reshape(1, -1)
            value, reward, ended, cut, info = made.step(actions.native(decide(row, masks)[0]))
            frames.append(_frame(made, settings))
            total += float(reward)
            over = bool(ended or cut)
            if over and info.get(CONTINUES):
                value, _ = made.reset()
                over = False
    except GalleyError:
        raise
    except Exception as error:
        raise _cannot_draw(settings, error) from error
    return total


def _frame(made: gymnasium.Env[Any, Any], settings: EnvironmentSettings) -> Array:
    drawn = made.render()
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
        raise GalleyError(
            "environment-unsupported",
            f"{settings.reference} draws no pictures: render() gave {type(drawn).__name__}",
            hint="the environment must take render_mode='rgb_array'",
        )
    return np.array(drawn[:, :, :3], np.uint8)


def _draw_without_screen() -> None:
    """Tell the drawing libraries, before they are loaded, that there may be no screen."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", _offscreen())


def _offscreen() -> str:
    """What MuJoCo draws with: a graphics driver where its library is found, else on the processor."""
    from ctypes.util import find_library

    return "egl" if find_library("EGL") or not find_library("OSMesa") else "osmesa"


def _cannot_draw(settings: EnvironmentSettings, error: Exception) -> GalleyError:
    text = f"{type(error).__name__}: {error}"
    backend = os.environ.get("MUJOCO_GL")
    if backend and any(word in text.lower() for word in ("egl", "osmesa", "opengl", "gl_", "glfw", "mujoco_gl")):
        return GalleyError(
            "environment-unsupported",
            f"{settings.reference} cannot be drawn here: MuJoCo found no way to draw with {backend}: {text}",
            hint="install libegl1 or libosmesa6 with the system's package manager, then MUJOCO_GL=egl or osmesa",
        )
    return GalleyError("environment-failed", f"{settings.reference} raised while it was recorded: {text}")


def _write_gif(recording: Recording, path: Path) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise GalleyError(
            "package-missing", "a GIF needs the package pillow", hint="pip install 'galley-train[control]'"
        ) from error
    step = max(1, round(recording.frames_per_second / 25))  # viewers slow down what is faster than 50 a second
    images = [Image.fromarray(frame) for frame in _thinned(recording.frames, step)]
    duration = max(20, round(1000 * step / recording.frames_per_second / 10) * 10)
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration, loop=0)


def _thinned(frames: Sequence[Array], step: int) -> list[Array]:
    """Every so many frames, and the last one."""
    kept = list(frames[::step])
    return kept if (len(frames) - 1) % step == 0 else [*kept, frames[-1]]


def _write_mp4(recording: Recording, path: Path) -> None:
    try:
        ffmpeg = importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise GalleyError(
            "package-missing",
            "an MP4 needs the package imageio-ffmpeg",
            hint="pip install imageio-ffmpeg, or name .gif",
        ) from error
    height, width = recording.frames[0].shape[:2]
    writer = ffmpeg.write_frames(str(path), (width, height), fps=recording.frames_per_second)
    writer.send(None)
    for frame in recording.frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
