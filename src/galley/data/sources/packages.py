"""Data that installed packages carry, read from their files without importing them."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.data.source import Source, shorten
from galley.data.sources import files

ALIASES = {"digits": ("scikit-learn", "datasets/data/digits.csv.gz")}
"""Short names of data files that have a format of their own: package and path in it."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_])?", re.ASCII)
_FORM = "name an installed package that carries data, e.g. package:chatterbot-corpus/english"


def open_sources(
    reference: str, *, options: dict[str, Any], split: str | None, rows: int | None, seed: int
) -> list[Source]:
    """Files of `PACKAGE/PATH`; the path is looked for in the package and in its `data` folder."""
    if reference in ALIASES:
        package, inner = ALIASES[reference]
        return [Source(f"package:{reference}", path=_root(package) / inner)]
    package, _, inner = reference.partition("/")
    root = _root(package)
    for folder in (root, root / "data"):
        target = (folder / inner).resolve()
        if inner and target.exists() and target.is_relative_to(root.resolve()):
            found = files.find_files(str(target))
            return [files.open_file(path, options, name=_shown(package, root, path)) for path in found]
    folder = root / "data" if (root / "data").is_dir() else root
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(("_", ".")))
    raise GalleyError(
        "data-not-found",
        f"package:{reference}: the package {package} has no data {inner!r}"
        if inner
        else f"package:{reference}: which data?",
        hint=f"write package:{package}/NAME with one of: {', '.join(names[:40])}",
    )


def _shown(package: str, root: Path, path: Path) -> str:
    return f"package:{package}/{path.relative_to(root.resolve()).as_posix()}"


def _root(package: str) -> Path:
    """The folder of a package, by the name that it is installed or imported under."""
    if package.partition(".")[0] in sys.stdlib_module_names:
        message = f"package:{package}: {package} is part of Python itself, and holds no data"
        raise GalleyError("data-not-found", message, hint=_FORM)
    if not _NAME.fullmatch(package):
        raise GalleyError("data-not-found", f"package:{shorten(package, 80)}: this is no name of a package", hint=_FORM)
    for name in (package.replace("-", "_"), *_import_names(package)):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
    raise GalleyError(
        "data-not-found",
        f"package:{package}: no such package is installed",
        hint=f"pip install {package}",
    )


def _import_names(package: str) -> list[str]:
    """Top-level folders that a distribution installed, which may be named unlike it (scikit-learn has sklearn)."""
    try:
        distribution = metadata.distribution(package)
    except (metadata.PackageNotFoundError, ValueError):
        return []
    inits = [file for file in distribution.files or () if len(file.parts) == 2 and file.name == "__init__.py"]
    return [file.parts[0] for file in inits]
