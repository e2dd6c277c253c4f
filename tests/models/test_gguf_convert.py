"""A GGUF file is converted once, completely, and to the model that it was made from."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from galley.base import GalleyError
from galley.models import gguf_convert, load, materialise, resolve
from galley.models.cache import converted_folder
from galley.models.gguf_convert import _shortest, main
from models import hub_folders

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("tied", [True, False])
def test_converted_model_is_the_original(tied: bool, tmp_path: Path, cache_folder: Path) -> None:
    original = hub_folders.model("llama", dtype=torch.bfloat16, tie_word_embeddings=tied, rms_norm_eps=1e-5)
    path = hub_folders.gguf(tmp_path / "tiny.gguf", original)
    main(path, converted_folder(path))
    module, tokenizer = load(resolve(str(path)), precision="bf16")
    weights = dict(module.state_dict())
    assert weights.keys() == original.state_dict().keys()
    for name, tensor in original.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    assert module.config.rms_norm_eps == 1e-5  # type: ignore[union-attr]
    ours = hub_folders.tokenizer()
    for text in ("The quick 2024 fox", "问题和答案", "<|im_start|>user\nx<|im_end|>"):
        assert tokenizer.encode(text) == ours.encode(text)
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == ours.apply_chat_template(messages, tokenize=False)
    assert module.generation_config.eos_token_id == [ours.eos_token_id]  # type: ignore[union-attr]
    assert resolve(str(path)).folder == converted_folder(path)


def test_killed_then_two_at_once(tmp_path: Path, cache_folder: Path) -> None:
    path = hub_folders.gguf(tmp_path / "tiny.gguf", hub_folders.model("llama"))
    folder = converted_folder(path)
    command = [sys.executable, "-m", "galley.models.gguf_convert", str(path), str(folder)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(folder.parent.glob("*.partial-*/tokenizer.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not folder.exists()
    notes: list[str] = []
    spec = resolve(str(path))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: materialise(spec, on_note=lambda kind, text: notes.append(text)), range(2)))
    assert len(notes) == 2
    assert resolve(str(path)).folder == folder
    assert [item.name for item in folder.parent.iterdir() if "partial" in item.name] == []
    load(resolve(str(path)), on_note=lambda kind, text: notes.append(text))
    assert len(notes) == 2


def test_an_unknown_rule_for_words_is_said(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = hub_folders.gguf(tmp_path / "tiny.gguf", hub_folders.model("llama"), words="a-new-rule")
    main(path, converted_folder(path))
    assert "note: the tokenizer of tiny.gguf splits words by the rule 'a-new-rule'" in capsys.readouterr().out


def test_one_part_of_several_is_refused(tmp_path: Path) -> None:
    path = hub_folders.gguf(tmp_path / "part.gguf", hub_folders.model("llama"), parts=2)
    with pytest.raises(GalleyError, match="one part of 2") as caught:
        resolve(str(path))
    assert caught.value.code == "model-unsupported"


def test_a_full_disk_leaves_nothing(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hub_folders.gguf(tmp_path / "tiny.gguf", hub_folders.model("llama"))
    folder = converted_folder(path)

    def full(source: Path, aside: Path) -> None:
        aside.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf_convert, "_write", full)
    assert main(path, folder) != 0
    assert [item.name for item in folder.parent.iterdir()] == [f"{folder.name}.lock"]


def test_a_damaged_file_is_refused_before_anything_is_converted(tmp_path: Path, cache_folder: Path) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(b"GGUF" + os.urandom(200))
    with pytest.raises(GalleyError) as caught:
        resolve(str(path))
    assert caught.value.code == "model-invalid"
    assert not cache_folder.exists()


@pytest.mark.parametrize("value", [1e-5, 1e-6, 0.02, 10000.0, 0.1, 5e5, 1.25])
def test_noise_of_float32_is_removed(value: float) -> None:
    stored = float(torch.tensor(value, dtype=torch.float32))
    assert _shortest(stored) == value
