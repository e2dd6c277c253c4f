"""Episodes in tables with one row a step: JSONL and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.containers import open_table
from galley.data.episodes.arrays import layout_texts, layouts_of
from galley.data.episodes.assemble import assemble, known_columns
from galley.data.episodes.spaces import Layouts
from galley.data.episodes.stored import StoredEpisodes
from galley.data.source import Record, field_error

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_FLAGS = ("terminated", "truncated")


def read_table(path: Path, suffix: str, options: Mapping[str, Any]) -> StoredEpisodes:
    """See `read_episodes`."""
    name = str(path)
    values: dict[str, list[Any]] = {}
    known: dict[str, str] = {}
    for record in open_table(path, suffix, {}).records():
        if not known:
            known = known_columns(name, record.fields)
            values = {ours: [] for ours in known}
        for ours, theirs in known.items():
            values[ours].append(_value(name, record, ours, theirs))
            if ours in ("observations", "actions", "successors") and _shape(values[ours][-1]) != _shape(
                values[ours][0]
            ):
                raise field_error(name, record, theirs, f"{_words(values[ours][0])} as in the first row")
    if not known:
        raise GalleyError("data-empty", f"{name}: there are no steps")
    columns = {ours: _array(name, ours, found) for ours, found in values.items()}
    return assemble(name, columns, _layouts(path, suffix), options)


def _value(name: str, record: Record, ours: str, theirs: str) -> Any:
    value = record.fields.get(theirs)
    if ours == "episode":
        if not isinstance(value, int | str):
            raise field_error(name, record, theirs, "the number or name of an episode")
        return value
    if ours in _FLAGS:
        if not isinstance(value, bool) and value not in (0, 1):
            raise field_error(name, record, theirs, "true or false")
        return bool(value)
    if isinstance(value, list) and ours != "rewards":
        if not value or not _all_numbers(value):
            raise field_error(name, record, theirs, "numbers")
        return value
    if not isinstance(value, int | float) or (ours == "rewards" and isinstance(value, bool)):
        raise field_error(name, record, theirs, "a number" if ours == "rewards" else "a number or a list of numbers")
    return value


def _all_numbers(value: list[Any]) -> bool:
    return all(_all_numbers(item) if isinstance(item, list) else isinstance(item, int | float) for item in value)


def _shape(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _words(first: Any) -> str:
    return f"a list of {len(first)} numbers" if isinstance(first, list) else "a number"


def _array(name: str, ours: str, found: list[Any]) -> Array:
    try:
        array: Array = np.asarray(found)
    except ValueError as error:
        raise GalleyError("data-row", f"{name}: {ours} have not the same shape in all rows ({error})") from error
    if ours == "observations" and array.dtype.kind in "iu" and array.ndim > 1:
        return array.astype(np.float32)  # a table cannot say that numbers which happen to be whole are floats
    return array


def _layouts(path: Path, suffix: str) -> Layouts | None:
    if suffix not in ("parquet", "pq"):
        return None
    import pyarrow.parquet as pq

    said = pq.read_schema(path).metadata or {}
    texts = [said.get(key) for key in (b"galley.observations", b"galley.actions")]
    if texts[0] is None or texts[1] is None:
        return None
    return layouts_of(str(path), texts[0].decode(), texts[1].decode())


def _records(episodes: StoredEpisodes) -> Iterator[dict[str, Any]]:
    number = 0
    ends = (episodes.terminated | episodes.truncated).tolist()
    for row, over in enumerate(ends):
        yield {
            "episode": number,
            "observation": episodes.observations[row].tolist(),
            "action": episodes.actions[row].tolist(),
            "reward": float(episodes.rewards[row]),
            "terminated": bool(episodes.terminated[row]),
            "truncated": bool(episodes.truncated[row]),
            "successor": episodes.successors[row].tolist(),
        }
        number += over


def write_jsonl(path: Path, episodes: StoredEpisodes) -> None:
    """See `write_episodes`."""
    with path.open("w", encoding="utf-8") as file:
        for record in _records(episodes):
            file.write(json.dumps(record) + "\n")


def write_parquet(path: Path, episodes: StoredEpisodes) -> None:
    """See `write_episodes`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise GalleyError(
            "package-missing", f"{path}: writing Parquet needs pyarrow", hint="pip install 'galley-train[data]'"
        ) from error
    ends = episodes.terminated | episodes.truncated
    number = np.concatenate([[0], np.cumsum(ends)[:-1]])
    columns = {
        "episode": pa.array(number),
        "observation": _lists(episodes.observations),
        "action": _lists(episodes.actions),
        "reward": pa.array(episodes.rewards),
        "terminated": pa.array(episodes.terminated),
        "truncated": pa.array(episodes.truncated),
        "successor": _lists(episodes.successors),
    }
    said = dict(zip(("galley.observations", "galley.actions"), layout_texts(episodes), strict=True))
    pq.write_table(pa.table(columns).replace_schema_metadata(said), path)


def _lists(rows: Array) -> Any:
    import pyarrow as pa

    if rows.ndim == 1:
        return pa.array(rows)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).reshape(-1)), rows.shape[1])
