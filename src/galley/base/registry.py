"""Find implementations by name: one file in a folder adds one entry, and nothing else needs an edit."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from galley.base.errors import GalleyError

if TYPE_CHECKING:
    from importlib import metadata

T = TypeVar("T")


class Registry(Generic[T]):
    """The entries of one seam, such as all methods or all data formats.

    A file `NAME.py` in the package that defines the attribute is the entry `NAME` (dashes in recipes become
    underscores in file names; files starting with an underscore are not entries). Installed packages add entries
    through entry points of the group named like the package, which are looked at last: reading the metadata of every
    installed package takes longer than anything else here. Only the entry that is asked for is imported.

    Args:
        package: import path of the folder, which is also the entry-point group, e.g. `galley.methods`.
        attribute: the module attribute that holds the entry, e.g. `METHOD`.
        kind: the word for one entry in messages, e.g. `method`.
    """

    def __init__(self, package: str, *, attribute: str, kind: str) -> None:
        self.package = package
        self.attribute = attribute
        self.kind = kind

    def own_names(self) -> tuple[str, ...]:
        """Names of the entries in the folder itself, sorted, without importing any entry."""
        found = {file.name.removesuffix(".py") for folder in self._folders() for file in os.scandir(folder)}
        return tuple(sorted(name.replace("_", "-") for name in found if self._is_entry(name)))

    def names(self) -> tuple[str, ...]:
        """All names, sorted, without importing any entry."""
        return tuple(sorted({*self.own_names(), *(point.name for point in self._entry_points())}))

    def get(self, name: str) -> T:
        """The entry of that name.

        Raises:
            GalleyError: `name-unknown`, with the nearest name, when there is none.
        """
        module = name.replace("-", "_")
        if self._is_entry(module):
            return cast(T, getattr(importlib.import_module(f"{self.package}.{module}"), self.attribute))
        for point in self._entry_points():
            if point.name == name:
                return cast(T, point.load())
        import difflib

        near = difflib.get_close_matches(name, self.names(), n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise GalleyError(
            "name-unknown",
            f"there is no {self.kind} {name!r}",
            hint=f"{guess}available: {', '.join(self.names())}",
        )

    def __iter__(self) -> Iterator[T]:
        return (self.get(name) for name in self.names())

    def _entry_points(self) -> tuple[metadata.EntryPoint, ...]:
        return _entry_points(self.package)

    def _folders(self) -> list[str]:
        return list(importlib.import_module(self.package).__path__)

    def _is_entry(self, module: str) -> bool:
        """Whether the file or folder defines the attribute, read from its source so that nothing is imported."""
        if not module.isidentifier() or module.startswith("_"):
            return False
        for folder in self._folders():
            for path in (f"{folder}/{module}/__init__.py", f"{folder}/{module}.py"):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    return b"\n%s" % self.attribute.encode() in b"\n" + file.read()
        return False


@functools.cache
def _entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    if not any(group.encode() in text for text in _declarations()):
        return ()
    from importlib import metadata

    return tuple(metadata.entry_points(group=group))


@functools.cache
def _declarations() -> tuple[bytes, ...]:
    """What installed packages declare, as text: ten times faster than reading their metadata to find nothing."""
    texts = []
    for folder in filter(os.path.isdir, dict.fromkeys(sys.path)):
        for entry in os.scandir(folder):
            if entry.name.endswith(("-info", ".egg")):
                with contextlib.suppress(OSError), open(f"{entry.path}/entry_points.txt", "rb") as file:
                    texts.append(file.read())
    return tuple(texts)
