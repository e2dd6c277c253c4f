from __future__ import annotations

import sys
from pathlib import Path

import pytest

from galley.base import GalleyError, Registry
from galley.base import registry as registry_module

pytestmark = pytest.mark.unit


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A package of two entries, one of which must not be imported, and a file that is none."""
    folder = tmp_path / "shapes_for_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "round_one.py").write_text("SHAPE = 'round'\n")
    (folder / "broken.py").write_text("SHAPE = 1 / 0\n")
    (folder / "helper.py").write_text("NOTHING = 1\n")
    (folder / "_private.py").write_text("SHAPE = 'private'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("shapes_for_test")]:
        monkeypatch.delitem(sys.modules, name)
    registry_module._entry_points.cache_clear()
    registry_module._declarations.cache_clear()
    return Registry("shapes_for_test", attribute="SHAPE", kind="shape")


def test_files_with_the_attribute_are_entries(registry: Registry[str]) -> None:
    assert registry.names() == ("broken", "round-one")


def test_only_the_entry_asked_for_is_imported(registry: Registry[str]) -> None:
    assert registry.get("round-one") == "round"
    assert "shapes_for_test.broken" not in sys.modules


@pytest.mark.parametrize("name", ["round-on", "helper", "_private", "", "..", "a.b", "os.path", "ROUND ONE"])
def test_unknown_names_are_one_clear_error(name: str, registry: Registry[str]) -> None:
    with pytest.raises(GalleyError) as caught:
        registry.get(name)
    assert caught.value.code == "name-unknown"
    assert "available: broken, round-one" in caught.value.hint
    assert ("did you mean round-one?" in caught.value.hint) == (name == "round-on")


def test_installed_packages_add_entries(registry: Registry[str], tmp_path: Path) -> None:
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shapes_for_test]\npath = os:sep\nround-one = os:curdir\n")
    assert registry.names() == ("broken", "path", "round-one")
    assert registry.get("path") == "/"
    assert registry.get("round-one") == "round", "our own entries are never replaced"
