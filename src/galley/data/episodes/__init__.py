"""Stored episodes: read, written, and played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.episodes.arrays import read_arrays, write_arrays
from galley.data.episodes.playing import from_environment
from galley.data.episodes.spaces import OPTIONS
from galley.data.episodes.stored import StoredEpisodes, joined
from galley.data.episodes.tables import read_table, write_jsonl, write_parquet
from galley.data.source import check_options

__all__ = ["StoredEpisodes", "from_environment", "read_episodes", "write_episodes"]

_TABLES = ("jsonl", "ndjson", "json", "parquet", "pq")
_WRITERS = {"npz": write_arrays, "jsonl": write_jsonl, "parquet": write_parquet}
_KINDS = ".npz, .jsonl or .parquet"


def read_episodes(path: Path, options: Mapping[str, Any]) -> StoredEpisodes:
    """Episodes of a file, or of all files of a folder in the order of their names.

    Args:
        path: `.npz` with arrays `observations`, `actions`, `rewards`, `terminated`, and best of all `successors` and
            `truncated`; or a table with one row a step and the columns `episode`, `observation`, `action`, `reward`,
            `terminated`, `truncated`, `successor`; or a folder of them. Names of D4RL are understood as well
            (`next_observations`, `terminals`, `timeouts`).
        options: for files that do not say what their actions are: `num_actions`, `action_low`, `action_high`.

    Raises:
        GalleyError: `data-not-found`, `data-format`, `data-columns`, `data-row`, `data-empty`, `data-options`,
            `package-missing`.
    """
    check_options(options, OPTIONS, "a file of stored episodes")
    if not path.exists():
        raise GalleyError("data-not-found", f"{path}: there is no such file or folder")
    if not path.is_dir():
        return _read(path, options)
    files = sorted(file for file in path.iterdir() if _suffix(file) in ("npz", *_TABLES))
    if not files:
        raise GalleyError("data-not-found", f"{path}: there are no stored episodes in this folder", hint=_KINDS)
    return joined([_read(file, options) for file in files], [str(file) for file in files])


def write_episodes(path: Path, episodes: StoredEpisodes) -> None:
    """Write episodes; the suffix says how: `.npz` or `.parquet` keep everything, `.jsonl` loses the spaces' bounds.

    Raises:
        GalleyError: `file-exists`; `data-format` for other suffixes.
    """
    writer = _WRITERS.get(_suffix(path))
    if writer is None:
        raise GalleyError("data-format", f"{path}: episodes are not written as {path.suffix or 'that'}", hint=_KINDS)
    if path.exists():
        raise GalleyError("file-exists", f"{path} exists", hint="name another file")
    writer(path, episodes)


def _read(path: Path, options: Mapping[str, Any]) -> StoredEpisodes:
    suffix = _suffix(path)
    if suffix == "npz":
        return read_arrays(path, options)
    if suffix in _TABLES:
        return read_table(path, suffix, options)
    raise GalleyError("data-format", f"{path}: episodes are not read from {path.suffix or 'such files'}", hint=_KINDS)


def _suffix(path: Path) -> str:
    return path.suffix[1:].lower()
