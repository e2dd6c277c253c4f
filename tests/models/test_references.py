"""What the words of a recipe mean, and what they do not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.models import resolve
from models import hub_folders

pytestmark = pytest.mark.unit


@settings(max_examples=60, deadline=None)
@given(st.floats(5.1, 11))
def test_random_models_have_about_the_asked_size(exponent: float) -> None:
    target = round(10**exponent)
    spec = resolve(f"random:{target}")
    assert spec.num_parameters == pytest.approx(target, rel=0.2 if target < 2e6 else 0.1)
    assert 16 <= spec.hidden_size / spec.num_layers <= 256
    assert spec.hidden_size == spec.num_heads * spec.head_dim


@pytest.mark.parametrize("words", ["random:", "random:big", "random:3", "random:900T"])
def test_random_with_a_wrong_size(words: str) -> None:
    with pytest.raises(GalleyError, match="random") as caught:
        resolve(words)
    assert caught.value.code == "model-not-found"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("smolm2-135m-instruct", "smollm2-135m-instruct"),
        ("./nowhere", "dot or slash"),
        ("nowhere.gguf", "path"),
        ("nowhere.py:Net", "file.py:Class"),
        ("package:no-such-package/model", "pip install no-such-package"),
        ("nonsense", "a hub id"),
    ],
)
def test_what_does_not_exist_gives_a_hint(words: str, part: str) -> None:
    with pytest.raises(GalleyError) as caught:
        resolve(words)
    assert caught.value.code == "model-not-found"
    assert part in caught.value.hint


def test_near_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    with pytest.raises(GalleyError) as caught:
        resolve(str(tmp_path / "my-modell"))
    assert str(tmp_path / "my-model") in caught.value.hint


def test_hub_offline_is_quick_and_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    start = time.perf_counter()
    with pytest.raises(GalleyError) as caught:
        resolve("some-org/some-model")
    assert caught.value.code == "model-offline"
    assert str(tmp_path) in caught.value.hint
    assert time.perf_counter() - start < 10


def test_hub_cache_is_read_without_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--org--tiny"
    hub_folders.folder(cached / "snapshots" / "abc123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc123")
    for words in ("org/tiny", "org/tiny@abc123"):
        spec = resolve(words)
        assert spec.folder == cached / "snapshots" / "abc123"
        assert (spec.source, spec.family, spec.has_chat_template) == ("hub", "llama", True)


def test_an_unfinished_download_is_not_taken_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    cached = hub_folders.folder(tmp_path / "models--org--tiny" / "snapshots" / "main")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (cached / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(GalleyError) as caught:
        resolve("org/tiny")
    assert caught.value.code == "model-offline"


def test_a_package_registers_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_folders.folder(tmp_path / "shiny_models" / "weights")
    (tmp_path / "shiny_models" / "__init__.py").write_text(
        "from pathlib import Path\nWEIGHTS = Path(__file__).parent / 'weights'\n"
    )
    info = tmp_path / "shiny_models-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shiny-models\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[galley.models]\nshiny-2b = shiny_models:WEIGHTS\n")
    monkeypatch.syspath_prepend(tmp_path)
    for words in ("shiny-2b", "package:shiny-models/weights"):
        spec = resolve(words)
        assert (spec.source, spec.family, spec.reference) == ("package", "llama", words)
    with pytest.raises(GalleyError) as caught:
        resolve("shiny-3b")
    assert "shiny-2b" in caught.value.hint


def test_an_existing_folder_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_folders.folder(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name").source == "folder"


def test_resolving_imports_nothing_heavy(tmp_path: Path) -> None:
    made = hub_folders.folder(tmp_path / "model")
    net = tmp_path / "net.py"
    net.write_text("import torch\nclass Net(torch.nn.Linear): pass\n")
    packed = hub_folders.gguf(tmp_path / "tiny.gguf", hub_folders.model("llama"))
    code = (
        "import sys, json, galley.models as m\n"
        "for words in sys.argv[1:]: m.resolve(words)\n"
        "heavy = ('torch', 'numpy', 'transformers', 'gguf', 'huggingface_hub')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    words = [str(made), f"{net}:Net", str(packed), "random:15M"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
