"""Episodes in `.npz` files: one array a column, and the layouts as JSON text. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.layout import ActionLayout, ObservationLayout
from galley.data.episodes.assemble import assemble, known_columns
from galley.data.episodes.spaces import Layouts
from galley.data.episodes.stored import StoredEpisodes
from galley.data.source import damage_is_an_error

_COLUMNS = ("observations", "actions", "rewards", "successors", "terminated", "truncated")
_LAYOUTS = ("observations_layout", "actions_layout")


def read_arrays(path: Path, options: Mapping[str, Any]) -> StoredEpisodes:
    """See `read_episodes`."""
    hint = "write it with numpy.savez(path, observations=..., actions=..., ...), without objects"
    with (
        damage_is_an_error(path, "a file of arrays of numbers", hint=hint),
        np.load(path, allow_pickle=False) as file,
    ):
        arrays = {name: file[name] for name in file.files}
    texts = [arrays.pop(key, None) for key in _LAYOUTS]
    known = known_columns(str(path), arrays)
    columns = {ours: arrays[theirs] for ours, theirs in known.items()}
    given = [str(text[()]) for text in texts if text is not None]
    layouts = layouts_of(str(path), *given) if len(given) == len(_LAYOUTS) else None
    return assemble(str(path), columns, layouts, options)


def write_arrays(path: Path, episodes: StoredEpisodes) -> None:
    """See `write_episodes`."""
    arrays: dict[str, Any] = {column: getattr(episodes, column) for column in _COLUMNS}
    arrays |= {key: np.array(text) for key, text in zip(_LAYOUTS, layout_texts(episodes), strict=True)}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def layout_texts(episodes: StoredEpisodes) -> tuple[str, str]:
    """Both layouts as JSON."""
    return json.dumps(episodes.observations_layout.to_json()), json.dumps(episodes.actions_layout.to_json())


def layouts_of(name: str, observations: str, actions: str) -> Layouts:
    """What `layout_texts` gave.

    Raises:
        GalleyError: `data-format`.
    """
    try:
        return Layouts(
            ObservationLayout.from_json(json.loads(observations)), ActionLayout.from_json(json.loads(actions))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GalleyError("data-format", f"{name}: its layouts cannot be read ({error!r})") from error
