"""What all tests share: no network, one thread, and golden files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
# Before torch is loaded: on models of a few layers more threads mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the tests got")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A job sets the threads of its whole process; the next test begins with one again."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


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
