"""Convert a GGUF file to hub layout, once: bf16 safetensors, tokenizer, chat template, generation config.

`convert` runs `python -m galley.models.gguf_convert FILE FOLDER`, so that the memory of unpacking is given back.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from galley.base import GalleyError
from galley.runs.atomic import fsync_file, fsync_folder, is_disk_full

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Vocabularies whose merges were learned with every digit on its own (llama.cpp's names of pre-tokenizers); GPT-2's
# rule, which transformers takes for them, would produce other tokens for numbers.
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
_GPT2_RULE = frozenset({"gpt-2", "gpt2", "phi-2", "olmo", "jais", "dolly"})
_DISK_FULL = 28
"""Exit code of the converting process."""
_NOTE = "note: "
"""Begins a line of the converting process that its parent passes on."""


def convert(path: Path, folder: Path) -> list[str]:
    """Make the hub-layout folder of a GGUF file; returns at once when it exists.

    Two processes that ask at once wait for one conversion; a killed one leaves nothing that looks finished.

    Returns:
        What a user should know about the result, such as a vocabulary whose rule for splitting words is not known.

    Raises:
        GalleyError: `model-invalid`, `out-of-memory` or `disk-full`.
    """
    if folder.is_dir():
        return []
    command = [sys.executable, "-m", "galley.models.gguf_convert", str(path), str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [line.removeprefix(_NOTE) for line in done.stdout.splitlines() if line.startswith(_NOTE)]
    if done.returncode == _DISK_FULL:
        raise GalleyError(
            "disk-full", f"there is no space left to convert {path}", hint=f"free space for {folder.parent}"
        )
    reason = (done.stderr.strip().splitlines() or [f"the converter ended with {done.returncode}"])[-1]
    if done.returncode < 0:
        message = f"converting {path}: the converter was ended by signal {-done.returncode}"
        raise GalleyError("out-of-memory", message, hint="close other programs, or take a smaller model")
    raise GalleyError("model-invalid", f"{path} cannot be converted: {reason}", hint="try the same model in hub layout")


def main(path: Path, folder: Path) -> int:
    """The converting process: under a lock, aside, then one rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        for leftover in folder.parent.glob(f"{folder.name}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if folder.is_dir():
            return 0
        aside = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
        try:
            _write(path, aside)
            for written in aside.iterdir():
                fsync_file(written)
            fsync_folder(aside)
            aside.rename(folder)
        except Exception as error:
            if not is_disk_full(error):
                raise
            return _DISK_FULL
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return 0


def _write(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils.quantization_config import GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    _split_words(tokenizer.backend_tokenizer, path)
    tokenizer.save_pretrained(folder)
    loaded = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    config = loaded.config
    # A model that came from GGUF refuses to be saved even when it is unpacked, so the weights move to a fresh one.
    if "quantization_config" in vars(config):
        del config.quantization_config
    for name, value in vars(config).items():
        if isinstance(value, float):
            setattr(config, name, _shortest(value))
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    state = {name: tensor.to(torch.bfloat16) for name, tensor in loaded.state_dict().items()}
    fresh.load_state_dict(state, assign=True)
    fresh.tie_weights()
    stops = {tokenizer.eos_token_id, getattr(config, "eos_token_id", None)} - {None}
    fresh.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=sorted(stops), pad_token_id=tokenizer.pad_token_id
    )
    fresh.save_pretrained(folder)


def _split_words(tokenizer: Tokenizer, path: Path) -> None:
    """Split text into words as the vocabulary was learned, where transformers does not know the rule."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    from galley.models.gguf_header import read_gguf_header

    header = read_gguf_header(path)
    rule = header.text("tokenizer.ggml.pre")
    if rule in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        steps: Any = pre_tokenizers.Sequence([digits, byte_level])
        tokenizer.pre_tokenizer = steps
    elif header.text("tokenizer.ggml.model") == "gpt2" and rule not in {*GGUF_PRE_TOKENIZER_SPLITS, *_GPT2_RULE}:
        sys.stdout.write(
            f"{_NOTE}the tokenizer of {path.name} splits words by the rule {rule or 'default'!r}, which is not known "
            "here; GPT-2's is used, so some tokens may differ from those that the model was trained on\n"
        )


def _shortest(value: float) -> float:
    """Undo the noise of float32 storage: 9.999999747378752e-06 was written as 1e-05."""
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
