"""docs/errors.md explains every error code, and no code that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from galley.base import ERROR_CODES

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    assert set(ENTRIES) == set(ERROR_CODES)


@pytest.mark.parametrize("code", ERROR_CODES)
def test_an_entry_says_what_it_means_and_what_to_do(code: str) -> None:
    meaning, _, advice = ENTRIES[code].partition("- **")
    assert len(meaning.split()) >= 5
    assert "**What to do.**" in advice or "What to do.**" in advice


def test_every_code_is_raised_somewhere() -> None:
    raised = set()
    for path in (ROOT / "src" / "galley").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "GalleyError":
                raised |= {word.value for word in ast.walk(node.args[0]) if isinstance(word, ast.Constant)}
    assert set(ERROR_CODES) <= raised


def test_the_page_names_every_exit_code() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == {0} | {int(code.exit) for code in ERROR_CODES.values()}
