"""What reading data gives: training rows, held-out rows, and what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from galley.data.examples import Example

Scorer: TypeAlias = Callable[[str, Example], float]
"""Scores an answer to an example between 0 and 1."""


@dataclass(frozen=True)
class DataStatistics:
    """Facts about a dataset before tokenising; `Report` lines are what `galley data` prints."""

    rows: int
    """Training rows, after everything that is dropped."""
    held_out_rows: int
    characters: int
    """Characters of all training rows; numbers for arrays."""
    longest_characters: int
    duplicates: int = 0
    """Rows that repeat an earlier one up to case and white space; they are kept, all on the same side of the split."""
    leaked: int = 0
    """Held-out rows that also stand in the training rows; they are removed from training."""
    empty: int = 0
    """Rows without anything to learn, dropped."""
    example_kind: str = "conversation"
    labels: tuple[str, ...] = ()
    """Names of the classes, sorted, for labelled data."""
    wide_share: float = 0.0
    """Share of the characters that are Chinese, Japanese, Korean or the like, seen in a sample of the rows."""


@dataclass(frozen=True)
class Dataset:
    """Examples of one kind, split into training and held-out rows, with where they came from."""

    train: Sequence[Example]
    held_out: Sequence[Example]
    statistics: DataStatistics
    fingerprint: str
    """Hash of the content of all rows and of the settings that they were read with."""
    format: str
    sources: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    """Role to column, as used."""
    scorer: Scorer | None = None
    """The task's own scorer, when the data brings one."""
    notes: tuple[str, ...] = ()
    """Things a user should know, such as rows dropped and why."""
