"""Galley from Python: train a recipe, plan it, and use a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import job
from galley.base.observer import Observer
from galley.plan import Plan
from galley.recipe import Recipe
from galley.recipe.write import as_mapping
from galley.runs import RunFolder

if TYPE_CHECKING:
    from torch import nn

    from galley.evaluate import Verdict
    from galley.generate import ChatSession
    from galley.plan.control import ControlPlan

RecipeSource = str | Path | Mapping[str, Any] | Recipe


@dataclass(frozen=True)
class Run:
    """A run and what one does with it.

    Args:
        folder: the run on the disk.

    Example:
        >>> run = Run.open("runs/chat-faq-001")  # doctest: +SKIP
        >>> run.chat("What is a recipe?")  # doctest: +SKIP
    """

    folder: RunFolder

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in that folder.

        Raises:
            GalleyError: `run-not-found`.
        """
        return cls(RunFolder.open(Path(path)))

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.folder.name

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.folder.path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl, oldest first."""
        return list(self.folder.metrics())

    @property
    def events(self) -> list[dict[str, Any]]:
        """All lines of events.jsonl, oldest first."""
        return list(self.folder.events())

    @property
    def verdict(self) -> Verdict:
        """Base against tuned on held-out rows.

        Raises:
            GalleyError: `run-unfinished` when it was not judged.
        """
        from galley.evaluate import Verdict

        return Verdict.model_validate(self.folder.read_result("verdict.json"))

    def load(self) -> tuple[nn.Module, Any]:
        """The trained module, in evaluation mode, and its tokenizer (None for models without text).

        Raises:
            GalleyError: `run-unfinished`.
        """
        from galley.models import load_result

        loaded = load_result(self.folder.result)
        return loaded.module, loaded.tokenizer

    def chat(self, text: str) -> str:
        """Say something in the conversation with this run, and return the whole answer."""
        return "".join(self.session.ask(text))

    @cached_property
    def session(self) -> ChatSession:
        """The conversation that `chat` continues; it remembers what was said."""
        from galley.generate import open_chat

        return open_chat(str(self.path), runs_root=self.path.parent)


def train(
    recipe: RecipeSource,
    *overrides: str,
    runs_root: str | Path = job.RUNS,
    resume: str = "auto",
    observer: Observer | None = None,
) -> Run:
    """Train, save and judge what the recipe asks for.

    Args:
        recipe: path of a recipe, a mapping, or a `Recipe`.
        overrides: `key=value`, as on the command line.
        runs_root: folder of all runs.
        resume: `auto`, `never`, or the name of the run to continue.
        observer: is told of progress; silent when left out.

    Raises:
        GalleyError: with a code, a message and a hint; see docs/errors.md.
    """
    return Run(job.train(_read(recipe, overrides), runs_root=Path(runs_root), resume=resume, observer=observer))


def plan(recipe: RecipeSource, *overrides: str) -> Plan | ControlPlan:
    """What `train` would do, with every reason, without loading a model.

    Raises:
        GalleyError: with a code, a message and a hint.
    """
    return job.plan(_read(recipe, overrides))


def _read(recipe: RecipeSource, overrides: tuple[str, ...]) -> Recipe:
    if isinstance(recipe, Recipe) and not overrides:
        return recipe
    return job.read_recipe(as_mapping(recipe) if isinstance(recipe, Recipe) else recipe, overrides)
