"""Datasets of the hub, through the `datasets` library and its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from galley.base import GalleyError
from galley.data.source import Record, Source, typed_option, with_sample

_OFFLINE_HINT = (
    "check the connection, or fetch it once where there is one: "
    "python -c \"import datasets; datasets.load_dataset('{name}')\"; a local copy works too: `data: folder/*.parquet`"
)


def open_sources(
    reference: str, *, options: dict[str, Any], split: str | None, rows: int | None, seed: int
) -> list[Source]:
    """One split of a dataset, `train` unless another is named; `options: {config: ...}` chooses a configuration."""
    name, table_split = reference, split or "train"
    data = _load(name, typed_option(options, "config", str, None), table_split)

    def records() -> Iterator[Record]:
        names = {
            column: feature.names for column, feature in data.features.items() if type(feature).__name__ == "ClassLabel"
        }
        for number, fields in enumerate(data, 1):
            for column, classes in names.items():
                if isinstance(fields[column], int) and fields[column] >= 0:
                    fields[column] = classes[fields[column]]
            yield Record(number, fields)

    shown = f"hub:{name} ({table_split})"
    return [with_sample(Source(shown, scheme="hub", records=records, columns=tuple(data.column_names)))]


def _load(name: str, config: str | None, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise GalleyError(
            "package-missing",
            f"hub:{name}: hub datasets need the package `datasets`",
            hint="pip install 'galley-train[data]'",
        ) from error
    try:
        return datasets.load_dataset(name, config, split=split)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise GalleyError("data-not-found", f"hub:{name}: {_first_line(error)}") from error
    except ValueError as error:  # an unknown split or configuration, with the known ones in the message
        raise GalleyError(
            "data-not-found",
            f"hub:{name}, split {split!r}: {_first_line(error)}",
            hint="choose with `data: {path: ..., split: ..., options: {config: ...}}`",
        ) from error
    except (OSError, RuntimeError) as error:  # every failure of the network is one of these
        raise GalleyError(
            "data-offline",
            f"hub:{name}: the hub cannot be reached, and the dataset is not in the cache ({_first_line(error)})",
            hint=_OFFLINE_HINT.format(name=name),
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
