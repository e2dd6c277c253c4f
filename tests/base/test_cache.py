"""Where Galley keeps what can be made again."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from galley.base.cache import cache_folder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("base", [None, "", "relative", "/somewhere/cache"])
def test_the_users_cache_folder_is_the_systems(base: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GALLEY_CACHE", raising=False)
    if base is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache_folder() == platformdirs.user_cache_path("galley", appauthor=False)


def test_the_user_may_choose_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
