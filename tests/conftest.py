"""What all tests share: no network, and golden files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the tests got")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("name.txt", text)` compares the text with golden/name.txt beside the test file."""
    folder = request.path.parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; run pytest --update-golden and look at it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if it should, run pytest --update-golden"

    return compare


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Galley's cache, empty and for this test alone."""
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
