from __future__ import annotations

import ast
from pathlib import Path

import pytest

import galley
from galley.base import ERROR_CODES, Exit, GalleyError

pytestmark = pytest.mark.unit

SOURCE = Path(galley.__file__).parent


def raised_codes() -> set[str]:
    """Codes in the source: first arguments of GalleyError(...), and words passed on to one."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in ERROR_CODES:
                found.add(str(node.value))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "GalleyError":
                code = node.args[0]
                assert not isinstance(code, ast.Constant) or code.value in ERROR_CODES, f"{path.name}:{node.lineno}"
    return found


def test_every_code_that_is_raised_is_declared_and_the_other_way_round() -> None:
    assert raised_codes() == set(ERROR_CODES)


def test_an_error_renders_as_two_lines() -> None:
    error = GalleyError("run-not-found", "there is no run 'faq'", hint="galley runs lists them")
    assert error.render() == "error[run-not-found]: there is no run 'faq'\nhint: galley runs lists them"
    assert error.exit == Exit.INVALID_INPUT


def test_exit_codes_of_the_kinds_of_failure() -> None:
    assert {name: int(ERROR_CODES[name].exit) for name in ("recipe-invalid", "plan-does-not-fit", "below-quality")} == {
        "recipe-invalid": 2,
        "plan-does-not-fit": 3,
        "below-quality": 4,
    }
    assert int(ERROR_CODES["run-locked"].exit) == 75
    assert int(ERROR_CODES["interrupted"].exit) == 130
