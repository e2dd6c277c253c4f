"""Which scorer judges a run, where the recipe names none."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.data.content import letters
from galley.data.examples import Document, Labelled
from galley.evaluate.scorers import SCORERS, Needs, Scorer
from galley.evaluate.scorers._text import expected_text

if TYPE_CHECKING:
    from galley.data import Dataset

_SHORT_LETTERS = 40
"""Answers of this median length or less are expected word for word; nobody finds a long answer again exactly."""


def choose_scorer(name: str | None, dataset: Dataset) -> tuple[str, Scorer]:
    """The scorer that the recipe names, or the one that suits the rows.

    Raises:
        GalleyError: `name-unknown`, or `plan-contradiction` when the scorer cannot judge such rows.
    """
    chosen = name or _suitable(dataset)
    scorer = SCORERS.get(chosen)
    possible = _possible(dataset)
    if scorer.needs not in possible or (chosen == "task" and dataset.scorer is None):
        kinds = [n for n in SCORERS.names() if SCORERS.get(n).needs in possible]
        if dataset.scorer is None:
            kinds = [n for n in kinds if n != "task"]
        raise GalleyError(
            "plan-contradiction",
            f"evaluate.scorer: {chosen!r} cannot judge {dataset.statistics.example_kind} rows of this data",
            hint=f"possible here: {', '.join(kinds)}",
        )
    return chosen, scorer


def _possible(dataset: Dataset) -> tuple[Needs, ...]:
    first = dataset.train[0]
    if isinstance(first, Labelled):
        return ("classes",)
    if isinstance(first, Document):
        return ("losses",)
    return ("answers", "losses")


def _suitable(dataset: Dataset) -> str:
    possible = _possible(dataset)
    if possible == ("classes",):
        return "accuracy"
    if possible == ("losses",):
        return "loss"
    if dataset.scorer is not None:
        return "task"
    rows = (dataset.held_out or dataset.train)[:200]
    return "exact" if median(letters(expected_text(row)) for row in rows) <= _SHORT_LETTERS else "loss"
