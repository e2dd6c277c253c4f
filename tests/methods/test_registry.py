"""Every method declares itself readably and without torch; one conformance test over all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from galley import methods
from galley.base import GalleyError
from galley.methods import MethodConfig, registry

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", registry.names())
def test_declarations(name: str) -> None:
    method = registry.get(name)
    assert method.name == name
    assert method.paper.startswith("https://")
    assert method.unit
    assert method.model_kinds
    assert method.example_kinds
    assert method.__doc__
    fields = method.Config.model_fields
    assert issubclass(method.Config, MethodConfig)
    assert len(fields) < 20
    assert all(field.description and not field.is_required() for field in fields.values())
    assert isinstance(method(method.Config()).needs(), frozenset)


def test_each_task_has_one_default() -> None:
    tasks = [task for name in registry.names() for task in registry.get(name).tasks]
    assert len(tasks) == len(set(tasks))
    assert methods.default_for("chat") == "sft"
    assert methods.default_for("complete") == "pretrain"
    with pytest.raises(GalleyError, match="no method is the default"):
        methods.default_for("fly")


def test_settings_are_strict() -> None:
    config = methods.config("sft")
    assert config.model_validate({"train_on": "last"}).model_dump() == {"train_on": "last"}
    with pytest.raises(ValueError, match="train_on"):
        config.model_validate({"train_on": "everything"})
    with pytest.raises(ValueError, match="beta"):
        config.model_validate({"beta": 1})
    with pytest.raises(GalleyError, match="no method 'sftt'") as caught:
        methods.config("sftt")
    assert "did you mean sft?" in caught.value.hint


def test_declarations_are_read_without_torch() -> None:
    script = (
        "import sys; from galley import methods; "
        "[methods.config(name) for name in methods.names()]; methods.default_for('chat'); "
        "print([name for name in ('torch', 'transformers', 'numpy', 'jinja2') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
