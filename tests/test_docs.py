"""What the documentation says about the code is what the code is."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from galley import methods
from galley.cli.main import VERBS
from galley.data import FORMATS
from galley.data.containers import SUFFIXES, table_options
from galley.evaluate.scorers import SCORERS
from galley.models.adapters import registry as adapters
from galley.runs import SINKS

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_keys_are_current() -> None:
    text = page("recipe.md")
    assert script("make_reference").filled(text) == text, "run python scripts/make_reference.py"


def test_the_recipes_in_the_pages_are_valid(tmp_path: Path) -> None:
    from galley import recipe

    blocks = re.findall(r"^```yaml\n(.*?)^```", page("recipe.md") + page("index.md"), re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if block.startswith("task:")]
    assert len(whole) == 3
    for block in whole:
        path = tmp_path / "recipe.yaml"
        path.write_text(block, encoding="utf-8")
        recipe.load(path, methods=methods)


def test_every_method_has_a_page_with_its_settings_and_its_paper() -> None:
    """Those of methods that act are looked at in tests/methods/control."""
    for name in methods.registry.names():
        text = page(f"methods/{name}.md")
        for setting in methods.config(name).model_fields:
            assert f"| `{setting}` |" in text, (name, setting)
        assert methods.registry.get(name).paper in text, name


def test_every_format_has_a_section() -> None:
    sections = re.findall(r"^### (\S+)$", page("data.md"), re.MULTILINE)
    assert sorted(sections) == sorted(FORMATS.names())


def test_every_setting_of_a_data_file_is_named() -> None:
    text = page("data.md")
    options = {option for suffix in SUFFIXES for option in table_options(suffix)}
    options |= {option for entry in FORMATS for option in entry.options}
    assert {option for option in options if f"`{option}" not in text} == set()


def test_every_adapter_scorer_and_sink_is_named() -> None:
    for name in adapters.names():
        assert f"| `{name}` |" in page("adapters.md")
    for name in SCORERS.names():
        assert f"| `{name}` |" in page("verdict.md")
    for name in SINKS.names():
        assert name in page("runs.md")


def test_every_event_kind_is_explained() -> None:
    """Kinds are the first words of calls that note or log them."""
    call = re.compile(r"(?:\bnote|on_note|log\.note|\.event|notes\.append)\(\(?\s*\"([a-z]+(?:-[a-z]+)*)\",")
    sources = [path for path in (ROOT / "src" / "galley").rglob("*.py") if path.parts[-2] not in ("cli", "generate")]
    kinds = {kind for path in sources for kind in call.findall(path.read_text(encoding="utf-8"))}
    explained = set(re.findall(r"`([a-z-]+)`", page("runs.md")))
    assert {"data", "resumed", "best"} <= kinds
    assert kinds - explained - {"truncated"} == set()  # `truncated` stands in an example of Observer


def test_the_gallery_names_every_recipe() -> None:
    for path in (ROOT / "recipes").glob("*.yaml"):
        assert f'--8<-- "recipes/{path.name}"' in page("gallery.md")
        assert f"| `{path.name}` |" in page("gallery.md")


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_source_tree_in_the_readme_exists(name: str) -> None:
    """Every line of the tree is a path, and every package and module of the top is in it."""
    tree = re.search(r"^```text\nsrc/galley/\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    assert tree is not None
    folders: list[str] = []
    told = set()
    for line in tree[1].splitlines():
        indent, entry = re.match(r"( *)(\S+)", line).groups()  # type: ignore[union-attr]
        del folders[len(indent) // 2 - 1 :]
        told.add("/".join([*folders, entry.rstrip("/")]))
        assert (ROOT / "src" / "galley" / "/".join([*folders, entry])).exists(), line
        if entry.endswith("/"):
            folders.append(entry.rstrip("/"))
    top = {path.name for path in (ROOT / "src" / "galley").iterdir() if not path.name.startswith(("_", ".", "py"))}
    assert top <= told, top - told


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readme_names_every_verb_and_its_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [verb for verb in VERBS.names() if f"| `{verb}` |" not in text] == []
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_pictures_are_of_this_repository() -> None:
    """Nothing in a picture or page is fetched from elsewhere."""
    for path in DOCS.rglob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert "url(http" not in text
        assert "@font-face" not in text


def test_the_schema_is_json() -> None:
    from galley.recipe import json_schema

    assert json.loads(json.dumps(json_schema(methods)))["title"] == "Galley recipe"
