"""A user's own nn.Module: found, built, saved with its source, loaded again; every mistake is said plainly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from galley.base import GalleyError
from galley.models import load, load_result, resolve, save, source_hash, user_module

pytestmark = pytest.mark.tiny

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes: int = 10, width: int = 8):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.ReLU())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.body(x))
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


@pytest.mark.parametrize("with_class", [True, False])
def test_resolved_loaded_saved_and_loaded_again(with_class: bool, net: Path, tmp_path: Path) -> None:
    spec = resolve(f"{net}:Net" if with_class else str(net))
    assert (spec.kind, spec.family, spec.source) == ("module", "Net", "file")
    module, tokenizer = load(spec, offered={"num_classes": 3, "vocab_size": 99}, seed=4)
    assert tokenizer is None
    x = torch.randn(5, 1, 4, 4)
    expected = module(x)
    assert expected.shape == (5, 3)
    save(module, None, tmp_path / "result", spec=spec, labels=("a", "b", "c"))
    net.unlink()
    loaded = load_result(tmp_path / "result", offered={"num_classes": 3})
    assert torch.equal(loaded.module(x), expected)
    assert loaded.labels == ("a", "b", "c")


def test_weights_depend_on_the_seed_alone(net: Path) -> None:
    first, second, other = (user_module(net, "Net", seed=seed) for seed in (1, 1, 2))
    x = torch.ones(1, 16)
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), other(x))


def test_hash_follows_the_source(net: Path) -> None:
    before = source_hash(net)
    net.write_text(NET + "\n# changed\n")
    assert source_hash(net) != before


@pytest.mark.parametrize(
    ("source", "name", "code", "part"),
    [
        (NET, "Nett", "model-not-found", "did you mean Net"),
        ("x = 1\n", "Net", "model-not-found", "none"),
        ("def broken(:\n", "Net", "model-invalid", "shows where"),
        ("raise RuntimeError('at import')\nclass Net: pass\n", "Net", "model-invalid", "shows where"),
        ("class Net:\n    pass\n", "Net", "model-unsupported", "nn.Module"),
        (NET.replace("num_classes: int = 10", "secret"), "Net", "model-unsupported", "offered by name"),
        (NET.replace("super().__init__()", "raise ValueError('in init')"), "Net", "model-invalid", "build it"),
    ],
)
def test_mistakes(source: str, name: str, code: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "mistake.py"
    path.write_text(source)
    with pytest.raises(GalleyError) as caught:
        load(resolve(f"{path}:{name}"))
    assert caught.value.code == code
    assert part in caught.value.hint


def test_resolving_does_not_run_the_file(tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nclass Net: pass\n")
    resolve(f"{path}:Net")
    assert not (tmp_path / "mark").exists()


def test_several_classes_must_be_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text("class A: pass\nclass B: pass\n")
    with pytest.raises(GalleyError) as caught:
        resolve(str(path))
    assert "two.py:A" in caught.value.hint
    assert "two.py:B" in caught.value.hint
