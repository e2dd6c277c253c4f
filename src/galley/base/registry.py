"""Find implementations by name: one file in a folder adds one entry, and nothing else needs an edit."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from importlib import metadata
from typing import Generic, TypeVar, cast

from galley.base.errors import GalleyError

T = TypeVar("T")


class Registry(Generic[T]):
    """The entries of one seam, such as all methods or all data formats.

    A file `NAME.py` in the package that defines the attribute is the entry `NAME` (dashes in recipes become
    underscores in file names; files starting with an underscore are not entries). Installed packages add entries
    through entry points of the group named like the package. Only the entry that is asked for is imported.

    Args:
        package: import path of the folder, which is also the entry-point group, e.g. `galley.methods`.
        attribute: the module attribute that holds the entry, e.g. `METHOD`.
        kind: the word for one entry in messages, e.g. `method`.
    """

    def __init__(self, package: str, *, attribute: str, kind: str) -> None:
        self.package = package
        self.attribute = attribute
        self.kind = kind

    def names(self) -> tuple[str, ...]:
        """All names, sorted, without importing any entry."""
        folder = importlib.import_module(self.package)
        files = (m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_"))
        own = (name.replace("_", "-") for name in files if self._is_entry(name))
        return tuple(sorted({*own, *(point.name for point in self._entry_points())}))

    def get(self, name: str) -> T:
        """The entry of that name.

        Raises:
            GalleyError: `name-unknown`, with the nearest name, when there is none.
        """
        for point in self._entry_points():
            if point.name == name:
                return cast(T, point.load())
        if name not in self.names():
            near = difflib.get_close_matches(name, self.names(), n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise GalleyError(
                "name-unknown",
                f"there is no {self.kind} {name!r}",
                hint=f"{guess}available: {', '.join(self.names())}",
            )
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        return cast(T, getattr(module, self.attribute))

    def __iter__(self) -> Iterator[T]:
        return (self.get(name) for name in self.names())

    def _entry_points(self) -> tuple[metadata.EntryPoint, ...]:
        return tuple(metadata.entry_points(group=self.package))

    def _is_entry(self, module: str) -> bool:
        """Whether the file defines the attribute, read from its source so that nothing is imported."""
        spec = importlib.util.find_spec(f"{self.package}.{module}")
        if spec is None or spec.origin is None:
            return False
        with open(spec.origin, encoding="utf-8") as file:
            return any(line.startswith(self.attribute) for line in file)
