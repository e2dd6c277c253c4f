"""Statistics that are remembered are those that reading gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from galley import data
from galley.base import GalleyError, remembered
from galley.data import facts
from galley.recipe import DataSection, EvaluateSection

pytestmark = pytest.mark.usefixtures("cache_folder")


def asked(path: str, task: str = "chat", **settings: Any) -> dict[str, Any]:
    return {"section": DataSection(path=path, **settings), "task": task, "evaluate": EvaluateSection(), "seed": 0}


def both(**about: Any) -> tuple[data.DataStatistics, data.DataStatistics]:
    section = about.pop("section")
    return data.statistics(section, **about), data.read(section, **about).statistics


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(remembered, "YOUNG_SECONDS", -1.0)
    path = tmp_path / "faq.csv"
    path.write_text("question,answer\n" + "".join(f"q{i},a{i}\n" for i in range(40)))
    return path


@pytest.mark.parametrize(
    ("path", "task", "settings"),
    [
        ("package:chatterbot-corpus/chinese", "chat", {}),
        ("reasoning-gym:family_relationships", "chat", {"options": {"size": 50}}),
        ("package:digits", "classify", {}),
    ],
)
def test_the_second_time_nothing_is_read(
    path: str, task: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered_first, read = both(**asked(path, task, **settings))
    assert remembered_first == read
    monkeypatch.setattr(facts, "read", None)
    about = asked(path, task, **settings)
    assert data.statistics(about.pop("section"), **about) == read


def test_another_request_or_a_changed_file_is_read(rows: Path) -> None:
    first, read = both(**asked(str(rows)))
    assert first == read
    fewer, read = both(**asked(str(rows), rows=20))
    assert fewer == read != first
    rows.write_text(rows.read_text() + "q41,a longer answer\n")
    os.utime(rows, ns=(1, 1))
    changed, read = both(**asked(str(rows)))
    assert changed == read != first


def test_mistakes_are_told_every_time(rows: Path) -> None:
    rows.write_text("question,answer\n")
    for _ in range(2):
        with pytest.raises(GalleyError):
            both(**asked(str(rows)))
