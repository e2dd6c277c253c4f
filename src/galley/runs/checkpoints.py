"""The checkpoints of a run: complete or absent, with `last` and `best` pinned; the newest complete one always loads."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.runs.atomic import disk_full_is_an_error, fsync_file, fsync_folder, replace_link

_NAME = re.compile(r"step-(\d{6,})")
_MARKER = "complete.json"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Args:
        step: optimiser steps done when it was saved.
        path: its folder.
        facts: what the saver noted, such as the held-out loss.
    """

    step: int
    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The folder `checkpoints/` of one run. Only the holder of the run's lock may save or recover.

    Args:
        folder: the folder; made by the first save.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        *,
        keep: int,
        best: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Save aside, flush everything to the disk, rename, pin, and only then remove old ones.

        Args:
            step: optimiser steps done.
            write: writes the files into the folder that it is given.
            keep: recent checkpoints that stay, beside the best one.
            best: also pin this one as `best`.
            facts: kept with the checkpoint.

        Raises:
            GalleyError: `disk-full`; earlier checkpoints and their pins are then untouched.
        """
        assert keep >= 1
        target = self.folder / f"step-{step:06d}"
        aside = self.folder / f".{target.name}.{os.getpid()}.partial"
        try:
            with disk_full_is_an_error(target):
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
                write(aside)
                _seal(aside, step, dict(facts or {}))
                self._put(aside, target)
                replace_link(self.folder / "last", target.name)
                if best:
                    replace_link(self.folder / "best", target.name)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        self._prune(keep)
        return Checkpoint(step, target, dict(facts or {}))

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first. Sizes are compared; contents are not read."""
        found = (self._read(path) for path in self._folders())
        return sorted((c for c in found if c is not None), key=lambda c: c.step)

    def last(self) -> Checkpoint | None:
        """The newest complete checkpoint."""
        return next(reversed(self.all()), None)

    def best(self) -> Checkpoint | None:
        """The pinned best checkpoint, else the newest."""
        pinned = self._pinned("best")
        return next((c for c in self.all() if c.path.name == pinned), None) or self.last()

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of one step.

        Raises:
            GalleyError: `checkpoint-missing`, with the steps that there are.
        """
        steps = {c.step: c for c in self.all()}
        if step not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise GalleyError(
                "checkpoint-missing",
                f"{self.folder} has no complete checkpoint of step {step}",
                hint=f"there are: {known}",
            )
        return steps[step]

    def recover(self, note: Callable[[str, str], None]) -> Checkpoint | None:
        """Clean up after a kill and give the newest checkpoint whose content is intact.

        Leftovers of unfinished saves are finished or removed. Damaged checkpoints are set aside under a name that
        starts with `damaged-`, and `last` is pointed at what is returned.

        Args:
            note: called with an event kind and a message for everything that was not as it should be.
        """
        if not self.folder.exists():
            return None
        for leftover in self.folder.glob(".*.partial"):
            self._settle(leftover, note)
        intact = None
        for path in sorted(self._folders(), key=_step_of, reverse=True):
            checkpoint = self._read(path)
            problem = "it is incomplete" if checkpoint is None else _content_problem(path)
            if not problem:
                intact = checkpoint
                break
            damaged = self.folder / f"damaged-{path.name}"
            _remove(damaged)
            path.replace(damaged)
            note("checkpoint-damaged", f"{path.name} cannot be loaded ({problem}); kept as {damaged.name}")
        self._repair_pins(intact)
        return intact

    def _settle(self, leftover: Path, note: Callable[[str, str], None]) -> None:
        """Finish the save when only its rename was missing (a same-step save may have moved the old one away)."""
        checkpoint = self._read(leftover) if leftover.is_dir() else None
        if checkpoint is not None and not (target := self.folder / f"step-{checkpoint.step:06d}").exists():
            leftover.replace(target)
            note("checkpoint-recovered", f"{target.name} was saved but not yet in place")
        else:
            _remove(leftover)
            note("checkpoint-cleaned", f"removed what an unfinished save left: {leftover.name}")

    def _repair_pins(self, intact: Checkpoint | None) -> None:
        for name in ("last", "best"):
            link = self.folder / name
            if link.is_symlink() and (intact is None or not link.is_dir()):
                link.unlink()
        if intact is not None and self._pinned("last") != intact.path.name:
            replace_link(self.folder / "last", intact.path.name)

    def _put(self, aside: Path, target: Path) -> None:
        """Rename into place. A checkpoint of the same step, from a training that was resumed before it, gives way."""
        old = target.with_name(f".{target.name}.old.partial")
        if target.exists():
            _remove(old)
            target.replace(old)
        aside.replace(target)
        fsync_folder(self.folder)
        _remove(old)

    def _prune(self, keep: int) -> None:
        best = self._pinned("best")
        for checkpoint in self.all()[:-keep]:
            if checkpoint.path.name != best:
                # Renamed first: a kill while files vanish must not leave a half checkpoint under a whole one's name.
                leaving = checkpoint.path.with_name(f".{checkpoint.path.name}.old.partial")
                _remove(leaving)
                checkpoint.path.replace(leaving)
                _remove(leaving)

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [p for p in self.folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir() and not p.is_symlink()]

    def _pinned(self, name: str) -> str:
        link = self.folder / name
        return link.readlink().name if link.is_symlink() else ""

    def _read(self, path: Path) -> Checkpoint | None:
        """The checkpoint, when every file that its marker names is there in full size."""
        try:
            marker = json.loads((path / _MARKER).read_bytes())
            sizes = {name: facts["bytes"] for name, facts in marker["files"].items()}
            if any((path / name).stat().st_size != size for name, size in sizes.items()):
                return None
            return Checkpoint(int(marker["step"]), path, dict(marker["facts"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _seal(folder: Path, step: int, facts: Mapping[str, Any]) -> None:
    """Flush all files and write the marker that says what a complete copy consists of."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    marker = folder / _MARKER
    marker.write_text(json.dumps({"step": step, "facts": facts, "files": content}, indent=2) + "\n", encoding="utf-8")
    for path in (*files, marker):
        fsync_file(path)
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        fsync_folder(path)


def _content_problem(folder: Path) -> str:
    """What is wrong with the content, or an empty string."""
    files = json.loads((folder / _MARKER).read_bytes())["files"]
    for name, facts in files.items():
        try:
            if _sha256(folder / name) != facts["sha256"]:
                return f"{name} has changed since it was saved"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return ""


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
