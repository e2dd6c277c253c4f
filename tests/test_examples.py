"""The scripts in examples/ run, in a tiny form, and give what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import galley
from galley import methods

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.tiny
def test_train_and_chat(cache_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = example("train_and_chat").main("model=random:100k", "budget.steps=2", "evaluate={rows: 3, max_new_tokens: 4}")
    assert run.verdict.n == 3
    assert run.verdict.sentence in capsys.readouterr().out
    assert [message.role for message in run.session.spoken] == ["user", "assistant"]


@pytest.mark.tiny
def test_own_module() -> None:
    run = example("own_module").main("budget.steps=150", "optimizer.learning_rate=5e-3")
    assert run.verdict.tuned > 0.8
    assert run.verdict.better


@pytest.mark.tiny
def test_compare_rates() -> None:
    lowest = example("compare_rates").main("budget.steps=8", "data.rows=400")
    assert set(lowest) == {1e-4, 1e-3, 1e-2}
    assert lowest[1e-3] < lowest[1e-4]


@pytest.mark.unit
def test_read_data(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = example("read_data").main()
    assert f"{len(dataset.train)} rows to train on" in capsys.readouterr().out


@pytest.mark.tiny
def test_a_method_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the folder of methods is found by its name, with its settings, and trains."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(EXAMPLES / "methods")])
    assert "focal" in methods.names()
    recipe = {
        "task": "classify",
        "model": f"{EXAMPLES.parent}/recipes/digits_net.py:Net",
        "data": {"path": "package:digits", "rows": 500},
        "budget": {"steps": 20},
        "override": {"global_batch": 32},
    }
    with pytest.raises(galley.GalleyError, match="gama"):
        galley.plan(recipe, "method={name: focal, gama: 1}")
    run = galley.train(recipe, "method={name: focal, gamma: 1}")
    assert run.verdict.better
    plain = galley.train(recipe, "budget.steps=1", "evaluate.verdict=false")
    assert plain.metrics[0]["loss"] > run.metrics[0]["loss"]  # easy rows count less: (1 - p)^gamma < 1


@pytest.mark.unit
def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'example("{path.stem}")' in here
