"""From named arrays with one row a step to stored episodes: names, lengths, ends, successors, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.episodes.spaces import OPTIONS, Layouts, guessed_layouts
from galley.data.episodes.stored import StoredEpisodes

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

NAMES: dict[str, tuple[str, ...]] = {
    "observations": ("observations", "observation"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
    "successors": ("successors", "successor", "next_observations", "next_observation"),
    "terminated": ("terminated", "terminals", "terminal"),
    "truncated": ("truncated", "timeouts", "timeout"),
    "episode": ("episode", "episodes"),
}
"""What we call a column, and what files call it."""
_NEEDED = ("observations", "actions", "rewards", "terminated")


def known_columns(name: str, found: Mapping[str, Any]) -> dict[str, str]:
    """Our word to the file's word for each column that is there.

    Raises:
        GalleyError: `data-columns` when one is missing.
    """
    known = {ours: theirs for ours, words in NAMES.items() for theirs in words if theirs in found}
    for ours in _NEEDED:
        if ours not in known:
            raise GalleyError(
                "data-columns",
                f"{name}: there is no {ours!r} among {', '.join(found) or '(nothing)'}",
                hint=f"stored episodes have {', '.join(_NEEDED)}, and best of all successors and truncated as well",
            )
    return known


def assemble(
    name: str, columns: Mapping[str, Array], layouts: Layouts | None, options: Mapping[str, Any]
) -> StoredEpisodes:
    """Check arrays and make whole episodes of them.

    An episode that stops without a flag, because the next one or the end of the file follows, was truncated. Where
    there are no successors, the next row's observation is one; that of an episode's truncated last row is unknown, so
    that this row is left out, and the row before it, whose successor is known, ends the episode.

    Args:
        name: of the file, for messages.
        columns: by our names, [T, ...] each.
        layouts: what rows mean; None to read it off the arrays.
        options: see `spaces`; only for files without layouts.

    Raises:
        GalleyError: `data-row`, `data-empty`, `data-options`.
    """
    _same_lengths(name, columns)
    guessed = layouts is None and not any(key in options for key in OPTIONS)
    if layouts is None:
        layouts = guessed_layouts(columns["observations"], columns["actions"], options)
    elif used := [key for key in OPTIONS if key in options]:
        raise GalleyError("data-options", f"data.options.{used[0]}: {name} says itself what its actions are")
    rewards = _finite(name, "rewards", columns["rewards"], 1).reshape(-1).astype(np.float32)
    observations = _rows(name, "observations", columns["observations"], layouts)
    actions = _checked_actions(name, columns["actions"], layouts)
    terminated = _flags(name, "terminated", columns["terminated"])
    truncated = _flags(name, "truncated", columns["truncated"]) if "truncated" in columns else np.zeros_like(terminated)
    truncated = _with_ends(name, terminated, truncated, columns.get("episode"))
    truncated &= ~terminated
    if "successors" in columns:
        successors = _rows(name, "successors", columns["successors"], layouts)
        whole = StoredEpisodes(*layouts, observations, actions, rewards, successors, terminated, truncated)
    else:
        whole = _without_successors(name, layouts, observations, actions, rewards, terminated, truncated)
    return replace(whole, guessed=guessed)


def _without_successors(
    name: str,
    layouts: Layouts,
    observations: Array,
    actions: Array,
    rewards: Array,
    terminated: Array,
    truncated: Array,
) -> StoredEpisodes:
    successors = np.roll(observations, -1, axis=0)
    successors[terminated] = observations[terminated]  # nothing looks at them
    kept = ~truncated
    before = np.zeros_like(truncated)
    before[:-1] = truncated[1:] & ~terminated[:-1] & ~truncated[:-1]
    if not kept.any():
        raise GalleyError("data-empty", f"{name}: no step has a successor", hint="store successors as well")
    return StoredEpisodes(
        *layouts,
        *(array[kept] for array in (observations, actions, rewards, successors, terminated, before)),
    )


def _same_lengths(name: str, columns: Mapping[str, Array]) -> None:
    rows = len(columns["rewards"]) if columns["rewards"].ndim else 0
    if not rows:
        raise GalleyError("data-empty", f"{name}: there are no steps")
    for column, array in columns.items():
        if array.ndim == 0 or len(array) != rows:
            found = "one value" if array.ndim == 0 else f"{len(array):,} rows"
            raise GalleyError("data-row", f"{name}: {column} has {found}, rewards has {rows:,}")


def _finite(name: str, column: str, array: Array, per_row: int | None) -> Array:
    if array.dtype.kind not in "iufb":
        raise GalleyError("data-row", f"{name}: {column} are {array.dtype}, expected numbers")
    if per_row is not None and array[0].size != per_row:
        raise GalleyError("data-row", f"{name}: {column} has {array[0].size} numbers a row, expected {per_row}")
    if array.dtype.kind == "f":
        good = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise GalleyError(
                "data-row", f"{name}, row {row + 1}: {column} is {array[row].tolist()}, expected finite numbers"
            )
    return array


def _rows(name: str, column: str, array: Array, layouts: Layouts) -> Array:
    layout = layouts.observations
    flat = _finite(name, column, array, layout.size).reshape(len(array), -1)
    return np.ascontiguousarray(flat, layout.dtype)


def _checked_actions(name: str, array: Array, layouts: Layouts) -> Array:
    layout = layouts.actions
    rows = _finite(name, "actions", array, layout.size).reshape(len(array), -1)
    if layout.kind == "box":
        return np.ascontiguousarray(rows, np.float32)
    whole = rows.astype(np.int64)
    good = ((whole == rows) & (whole >= 0) & (whole < np.asarray(layout.sizes))).all(axis=1)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise GalleyError(
            "data-row",
            f"{name}, row {row + 1}: action is {array[row].tolist()}, expected choices from 0 to below "
            f"{', '.join(str(n) for n in layout.sizes)}",
        )
    return whole[:, 0] if layout.kind == "discrete" else whole


def _flags(name: str, column: str, array: Array) -> Array:
    values = _finite(name, column, array, 1).reshape(-1)
    flags = values.astype(np.bool_)
    if not (flags == values).all():
        row = int(np.flatnonzero(flags != values)[0])
        raise GalleyError("data-row", f"{name}, row {row + 1}: {column} is {values[row]}, expected true or false")
    return flags


def _with_ends(name: str, terminated: Array, truncated: Array, episode: Array | None) -> Array:
    """Which rows are truncated, with those whose episode just stops."""
    ends = truncated.copy()
    if episode is not None:
        changes = np.flatnonzero(episode[1:] != episode[:-1])
        first = np.concatenate([[0], changes + 1])
        if len(np.unique(episode[first])) != len(first):
            numbers, counts = np.unique(episode[first], return_counts=True)
            raise GalleyError(
                "data-row", f"{name}: the steps of episode {numbers[counts > 1][0]} do not stand one after the other"
            )
        inside = (terminated | truncated)[:-1].copy()
        inside[changes] = False
        if inside.any():
            row = int(np.flatnonzero(inside)[0])
            raise GalleyError(
                "data-row",
                f"{name}, row {row + 1}: the episode {episode[row]} ended, and row {row + 2} belongs to it as well",
            )
        ends[changes] = True
    ends[-1] = True
    return np.asarray(ends & ~terminated)
