"""One training is one folder: what was asked, decided, measured, saved and made. The only truth about a training."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from galley.base import GalleyError
from galley.runs import lock
from galley.runs.atomic import disk_full_is_an_error, fsync_folder, read_json, write_bytes, write_json
from galley.runs.checkpoints import Checkpoints
from galley.runs.stream import JsonLines, newest, read_lines

Status = Literal["new", "running", "interrupted", "failed", "done"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RECIPE, _PLAN, _MANIFEST = "recipe.yaml", "plan.json", "manifest.json"
_STATUS = "status"


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk. Reading needs nothing but this package; writing is for the holder of `lock()`.

    Args:
        path: the folder; its last part is the run's name.
    """

    path: Path

    @classmethod
    def create(
        cls, root: Path, name: str, *, recipe: str, plan: Mapping[str, Any], manifest: Mapping[str, Any]
    ) -> RunFolder:
        """Make a run that appears with its three files at once.

        Args:
            root: the folder of all runs; made when missing.
            name: name of the run, as in the recipe.
            recipe: text of recipe.yaml.
            plan: content of plan.json.
            manifest: content of manifest.json: versions, seeds, hashes, lineage.

        Raises:
            GalleyError: `run-exists` when the name is taken, `run-folder`, `disk-full`.
        """
        path = _inside(root, name)
        aside = root / f".{name}.{os.getpid()}.partial"
        with disk_full_is_an_error(path), _unwritable_is_an_error(root):
            root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            try:
                (aside / "checkpoints").mkdir(parents=True)
                (aside / "result").mkdir()
                write_bytes(aside / _RECIPE, recipe.encode())
                write_json(aside / _PLAN, plan)
                write_json(aside / _MANIFEST, {**manifest, _STATUS: _status("new", "")})
                if path.exists():
                    raise _exists(path)
                try:
                    aside.rename(path)
                except OSError:  # someone else was first: a full folder is never replaced
                    if path.exists():
                        raise _exists(path) from None
                    raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            fsync_folder(root)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run.

        Raises:
            GalleyError: `run-not-found` when the folder is not one of a run.
        """
        if not (path / _RECIPE).is_file():
            raise GalleyError("run-not-found", f"{path} is not the folder of a run", hint="`galley runs` lists them")
        return cls(path)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def checkpoints(self) -> Checkpoints:
        """Saved states of the training."""
        return Checkpoints(self.path / "checkpoints")

    @property
    def result(self) -> Path:
        """Folder of what was made: model, adapter, verdict, pictures."""
        return self.path / "result"

    @property
    def metrics_path(self) -> Path:
        """metrics.jsonl."""
        return self.path / "metrics.jsonl"

    @property
    def events_path(self) -> Path:
        """events.jsonl."""
        return self.path / "events.jsonl"

    def recipe(self) -> str:
        """The text of recipe.yaml."""
        return (self.path / _RECIPE).read_text(encoding="utf-8")

    def plan(self) -> dict[str, Any]:
        """The content of plan.json."""
        return _mapping(self.path / _PLAN)

    def manifest(self) -> dict[str, Any]:
        """The content of manifest.json, without the state of the run."""
        content = _mapping(self.path / _MANIFEST)
        content.pop(_STATUS, None)
        return content

    def rewrite(
        self,
        *,
        recipe: str | None = None,
        plan: Mapping[str, Any] | None = None,
        manifest: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace what changed when a run is extended; each file atomically.

        Raises:
            GalleyError: `disk-full`.
        """
        if recipe is not None:
            write_bytes(self.path / _RECIPE, recipe.encode())
        if plan is not None:
            write_json(self.path / _PLAN, plan)
        if manifest is not None:
            old = _mapping(self.path / _MANIFEST)
            write_json(self.path / _MANIFEST, {**manifest, _STATUS: old.get(_STATUS, _status("new", ""))})

    def write_result(self, name: str, value: Any) -> Path:
        """Write result/NAME as JSON, atomically.

        Raises:
            GalleyError: `disk-full`.
        """
        path = _inside(self.result, name)
        self.result.mkdir(exist_ok=True)
        write_json(path, value)
        return path

    def read_result(self, name: str) -> Any:
        """The JSON in result/NAME.

        Raises:
            GalleyError: `run-unfinished` when it is not there (yet).
        """
        path = _inside(self.result, name)
        if not path.exists():
            raise GalleyError(
                "run-unfinished", f"run {self.name} has no {name} yet", hint=f"galley resume {self.name} finishes it"
            )
        return read_json(path)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run exclusively; the kernel lets go when this process dies.

        Raises:
            GalleyError: `run-locked`, naming the process that holds it and since when.
        """
        return lock.exclusive(self.path)

    def set_status(self, status: Status, message: str = "") -> None:
        """Note what the training is doing, in manifest.json.

        Raises:
            GalleyError: `disk-full`.
        """
        write_json(self.path / _MANIFEST, {**_mapping(self.path / _MANIFEST), _STATUS: _status(status, message)})

    def status(self) -> Status:
        """What the training is doing now. A training that was killed counts as interrupted."""
        noted: Status = _mapping(self.path / _MANIFEST).get(_STATUS, {}).get("is", "new")
        if noted == "running" and not lock.is_locked(self.path):
            return "interrupted"
        return noted

    def status_message(self) -> str:
        """Why the run failed or stopped, or an empty string."""
        return str(_mapping(self.path / _MANIFEST).get(_STATUS, {}).get("message", ""))

    def is_blank(self) -> bool:
        """Whether no step was done, so that nothing is lost with the run."""
        return self.checkpoints.last() is None and not self.newest_metrics()

    def discard(self) -> None:
        """Remove the run.

        Raises:
            GalleyError: `run-locked` while it is being trained.
        """
        with self.lock():
            aside = self.path.with_name(f".{self.name}.{os.getpid()}.discarded")
            self.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def open_metrics(self) -> JsonLines:
        """The writer of metrics.jsonl."""
        return JsonLines(self.metrics_path)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl: `step`, `tokens`, `seconds`, `loss`, `held_out_loss`, ..."""
        return read_lines(self.metrics_path)

    def newest_metrics(self) -> dict[str, Any]:
        """The newest value of each name in the last lines of metrics.jsonl."""
        return newest(self.metrics_path)

    def event(self, kind: str, message: str, **facts: Any) -> None:
        """Add a line to events.jsonl.

        Raises:
            GalleyError: `disk-full`.
        """
        with JsonLines(self.events_path) as events:
            events.append({"time": round(time.time(), 3), "kind": kind, "message": message, **facts})

    def events(self) -> Iterator[dict[str, Any]]:
        """The lines of events.jsonl: `time` (seconds since 1970), `kind`, `message`, and facts."""
        return read_lines(self.events_path)


def list_runs(root: Path) -> list[RunFolder]:
    """All runs under the root, oldest first (by the time of their recipe)."""
    if not root.is_dir():
        return []
    home = root.resolve()
    found = []
    for entry in os.scandir(root):
        if not _NAME.fullmatch(entry.name) or (entry.is_symlink() and home not in Path(entry.path).resolve().parents):
            continue
        try:
            made = Path(entry.path, _RECIPE).stat().st_mtime_ns
        except OSError:
            continue
        found.append((made, entry.name))
    return [RunFolder(root / name) for _, name in sorted(found)]


def find_run(root: Path, run: str) -> RunFolder:
    """The run of that name under the root, or at that path.

    Raises:
        GalleyError: `run-not-found`, with the nearest name.
    """
    path = root / run if _NAME.fullmatch(run) else Path(run)
    for candidate in (path, Path(run)):
        if (candidate / _RECIPE).is_file():
            return RunFolder(candidate)
    names = [folder.name for folder in list_runs(root)]
    near = difflib.get_close_matches(run, names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    raise GalleyError("run-not-found", f"there is no run {run!r} in {root}", hint=f"{guess}`galley runs` lists them")


@contextmanager
def _unwritable_is_an_error(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT):
            raise
        raise GalleyError(
            "run-folder",
            f"runs cannot be written to {root}: {(error.strerror or type(error).__name__).lower()}",
            hint="name another folder with --runs DIR",
        ) from None


def free_name(root: Path, stem: str) -> str:
    """The first free name `STEM-001`, `STEM-002`, ... for a recipe without a name.

    Args:
        root: the folder of all runs.
        stem: what the run is about, e.g. `chat-faq`; letters that a name may not have become dashes.
    """
    clean = re.sub(r"[^A-Za-z0-9._]+", "-", stem).strip("-._")[:90] or "run"
    taken = {entry.name for entry in os.scandir(root)} if root.is_dir() else set()
    number = 1
    while f"{clean}-{number:03d}" in taken:
        number += 1
    return f"{clean}-{number:03d}"


def _inside(folder: Path, name: str) -> Path:
    """The path of a plain name, which can never lead out of the folder."""
    if not _NAME.fullmatch(name):
        raise GalleyError(
            "recipe-invalid",
            f"{name!r} cannot be a name in a run folder",
            hint="use letters, digits, dots, dashes and underscores, and start with a letter or digit",
        )
    return folder / name


def _exists(path: Path) -> GalleyError:
    return GalleyError(
        "run-exists",
        f"there is already a run at {path}",
        hint="continue it with --resume auto, extend it, or choose another `name:`; runs are never overwritten",
    )


def _status(status: Status, message: str) -> dict[str, Any]:
    return {"is": status, "since": round(time.time(), 3), "message": message}


def _mapping(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise GalleyError("run-damaged", f"{path} does not hold a JSON object", hint="restore the file or the run")
    return value
