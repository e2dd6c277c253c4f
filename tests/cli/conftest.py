from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import Galley


@pytest.fixture
def galley(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Galley:
    """Runs command lines in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    return Galley(tmp_path, capsys)
