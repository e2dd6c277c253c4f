"""Files, folders and globs on this machine."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.containers import SUFFIXES, open_table
from galley.data.sniff import UNREADABLE, unreadable
from galley.data.source import Source, file_suffix, shorten, with_sample

TEXT_SUFFIXES = ("txt", "md")
ARRAY_SUFFIXES = ("npz",)
IMAGE_SUFFIXES = ("png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "pgm", "ppm")
_KNOWN = (*SUFFIXES, *TEXT_SUFFIXES, *ARRAY_SUFFIXES)


def open_sources(
    reference: str, *, options: dict[str, Any], split: str | None, rows: int | None, seed: int
) -> list[Source]:
    """The files that a path, folder or glob names."""
    if not reference.strip():
        raise GalleyError("data-not-found", "no data is named", hint="write a path, or . for all files of this folder")
    try:
        return [open_file(path, options) for path in find_files(reference)]
    except OSError as error:  # a name that no file can have, or a folder that may not be looked into
        message = f"{shorten(reference, 80)}: cannot be read ({error.strerror or type(error).__name__})"
        raise GalleyError("data-not-found", message, hint="data is a path to a file; rows are read from it") from error


def find_files(reference: str) -> list[Path]:
    """Data files that a path, folder or glob names, in the order of their names.

    Raises:
        GalleyError: `data-not-found` when there are none.
    """
    path = Path(reference).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [path]
    matches = sorted(Path(match) for match in glob.iglob(str(path), recursive=True))  # noqa: PTH207 (absolute patterns)
    files = [match for match in matches if match.is_file() and not match.name.startswith(".")]
    if not files:
        raise _not_found(reference, path)
    return files


def open_file(path: Path, options: dict[str, Any], *, name: str | None = None) -> Source:
    """One file, or a folder of labelled images, as a source.

    Raises:
        GalleyError: `data-format` when its suffix is not known, and what the file kind raises.
    """
    shown = name or str(path)
    if path.is_dir():
        return Source(shown, path=path)
    suffix = file_suffix(path)
    try:
        if suffix in SUFFIXES:
            table = open_table(path, suffix, options)
            return with_sample(
                Source(shown, path=path, records=table.records, columns=table.columns, notes=table.notes)
            )
        if suffix in TEXT_SUFFIXES or suffix in ARRAY_SUFFIXES:
            with path.open("rb"):
                return Source(shown, path=path)
    except UNREADABLE as error:
        raise unreadable(shown, error) from error
    raise GalleyError(
        "data-format",
        f"{shown}: files of the kind .{suffix} are not supported"
        if suffix
        else f"{shown}: its name does not end in a kind of file",
        hint=_CONVERT.get(suffix, f"supported: {', '.join(f'.{known}' for known in _KNOWN)}, folders of images"),
    )


_CONVERT = {
    "xls": "save it as .xlsx or .csv",
    "ods": "save it as .xlsx or .csv",
    "pdf": "turn it into .txt or .md first",
    "docx": "save it as .txt or .md",
    "zip": "unpack it and name the folder",
    "pkl": "pickles can run code: save it as .parquet or .jsonl",
    "npy": "save the inputs and labels together: numpy.savez('data.npz', x=x, y=y)",
}


def _in_folder(folder: Path) -> list[Path]:
    """Data files below a folder; the folder itself when it holds class folders of images."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    by_suffix = [(path, file_suffix(path)) for path in files]
    # A README beside tables describes them; it is no data.
    for group in (tuple(SUFFIXES), ARRAY_SUFFIXES, TEXT_SUFFIXES):
        if found := [path for path, suffix in by_suffix if suffix in group and not _is_description(path, files)]:
            return found
    if any(suffix in IMAGE_SUFFIXES for _, suffix in by_suffix):
        return [folder]
    raise GalleyError(
        "data-not-found",
        f"{folder}: the folder holds no data files",
        hint=f"supported: {', '.join(f'.{known}' for known in _KNOWN)}, folders of images",
    )


def _is_description(path: Path, files: list[Path]) -> bool:
    """Whether a file only describes its neighbours, as hub folders have it."""
    return len(files) > 1 and path.name.lower() in (
        "readme.md",
        "license.txt",
        "dataset_info.json",
        "dataset_infos.json",
    )


def _not_found(reference: str, path: Path) -> GalleyError:
    import difflib

    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        hint = f"did you mean {folder / near[0]}?"
    elif not folder.is_dir():
        hint = f"the folder {folder} does not exist"
    elif reference.count("/") == 1 and not path.suffix:
        hint = f"a dataset of the hub is written hub:{reference}"
    else:
        hint = "relative paths start at the recipe's folder, or at the current one"
    return GalleyError("data-not-found", f"{reference}: there is no such file or folder", hint=hint)
