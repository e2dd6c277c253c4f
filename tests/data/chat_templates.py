"""Chat templates written after those of well-known model families, and small trained tokenizers that carry them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from galley.data.examples import Message, Role

Pieces = Literal["gpt2", "llama3", "sentencepiece"]

_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Family:
    """A template in two copies: as published, and with `{% generation %}` markers around what is generated."""

    source: str
    marked: str
    pieces: Pieces
    bos: str | None
    eos: str
    special: tuple[str, ...]
    closing: str
    """What ends an answer."""
    opening: str = ""
    """What the model generates before the content."""
    system: bool = True


def _pair(source: str) -> tuple[str, str]:
    """Both copies of a source in which « and » stand where markers begin and end."""
    plain = source.replace("«", "").replace("»", "")
    return plain, source.replace("«", "{% generation %}").replace("»", "{% endgeneration %}")


CHATML = _pair(
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "«{{ message['content'] + '<|im_end|>' }}»{{ '\n' }}"
    "{% else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = _pair(
    "{{- bos_token }}{% for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}{% if message['role'] == 'assistant' %}"
    "«{{- message['content'] | trim + '<|eot_id|>' }}»{% else %}"
    "{{- message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = _pair(
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<start_of_turn>model\n' }}"
    "«{{ message['content'] | trim + '<end_of_turn>\n' }}»{% else %}"
    "{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
MISTRAL = _pair(
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}"
    "{% set loop_messages = messages[1:] %}{% else %}{% set system = '' %}{% set loop_messages = messages %}{% endif %}"
    "{% for message in loop_messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system if loop.first else '') + message['content'] + '[/INST]' }}"
    "{% else %}«{{ ' ' + message['content'] + eos_token }}»{% endif %}{% endfor %}"
)
ZEPHYR = _pair(
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "«{{ '\n' + message['content'] + eos_token }}»{% else %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token }}{% endif %}{{ '\n' }}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}{% endfor %}"
)
QWEN3 = _pair(
    "{%- set ns = namespace(last=-1) %}{%- for message in messages %}{%- if message.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for message in messages %}"
    "{%- if message.role == 'assistant' %}{%- set content = message.content %}{%- set thought = '' %}"
    "{%- if '</think>' in content %}{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{{- '<|im_start|>assistant\n' }}"
    "«{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<think>\n' + thought + '\n</think>\n\n' + content }}{%- else %}{{- content }}{%- endif %}"
    "{{- '<|im_end|>\n' }}»{%- else %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)

OPENED_THOUGHT = QWEN3[0].replace(
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}",
    "{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}",
)
"""Asks for a thought by opening one, as newer reasoning models do."""

DROPPED_THOUGHT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ '<|assistant|>' + message['content'].split('</think>')[-1] + eos_token }}{% else %}"
    "{{ '<|user|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)
"""Asks for a thought and never writes one: no answer stands behind its prompt."""

SYSTEM_LAST = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}"
    "{% set loop_messages = messages[1:] %}{% else %}{% set system = '' %}{% set loop_messages = messages %}{% endif %}"
    "{% set ns = namespace(last=0) %}{% for message in loop_messages %}{% if message['role'] == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for message in loop_messages %}"
    "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system if loop.index0 == ns.last else '') + message['content'] + '[/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
"""Moves the system message into the last question, so that earlier prompts change afterwards (Mistral v3)."""

OPEN_END = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ (eos_token if not loop.first else '') + '<|user|>' + message['content'] }}"
    "{% else %}{{ '<|assistant|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Closes an answer only when another question follows."""

FAMILIES: dict[str, Family] = {
    "chatml": Family(*CHATML, "gpt2", None, "<|im_end|>", ("<|im_start|>", "<|im_end|>"), "<|im_end|>"),
    "llama3": Family(
        *LLAMA3,
        "llama3",
        "<|begin_of_text|>",
        "<|end_of_text|>",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
    ),
    "gemma": Family(
        *GEMMA,
        "sentencepiece",
        "<bos>",
        "<eos>",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        system=False,
    ),
    "mistral": Family(*MISTRAL, "sentencepiece", "<s>", "</s>", ("<s>", "</s>", "[INST]", "[/INST]"), "</s>", " "),
    "zephyr": Family(*ZEPHYR, "sentencepiece", "<s>", "</s>", ("<s>", "</s>"), "</s>", "\n"),
    "zephyr-llama3": Family(*ZEPHYR, "llama3", "<s>", "</s>", ("<s>", "</s>"), "</s>", "\n"),
    "qwen3": Family(*QWEN3, "llama3", None, "<|im_end|>", ("<|im_start|>", "<|im_end|>"), "<|im_end|>"),
}

_TEXT = [
    "You are a helpful AI assistant. What relation is Anna to Bert? Answer only with the word.\n\nShe is his mother.",
    "system user assistant model think <think>\n\n</think>\n\n [INST] 12 + 34 = 46. ",
    "Die Straße ist naß; 你好，世界。 Привет! 🙂 \t  indented\n    code(x) -> y\n",
]


_MERGING = "<|user|>\n\nHi</s>\n<|assistant|>\n\nHo</s>\nword\n\nword\n\n\nword" * 3
"""Teaches to merge the end of a header with the line break behind it, as large vocabularies do."""


@cache
def _trained(pieces: Pieces, special: tuple[str, ...], bos: str | None) -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=pieces == "sentencepiece"))
    alphabet: list[str] = pre_tokenizers.ByteLevel.alphabet()
    if pieces == "sentencepiece":
        # Llama 2 and Mistral: a space before every text, byte pieces for what is unknown.
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        special = (*special, *(f"<0x{byte:02X}>" for byte in range(256)))
        alphabet = []
    else:
        split: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pieces == "gpt2")]
        if pieces == "llama3":
            from tokenizers import Regex

            split.insert(0, pre_tokenizers.Split(Regex(_CL100K), behavior="isolated"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*_TEXT, _MERGING] if pieces == "llama3" else _TEXT, trainer)
    if bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    text: str = tokenizer.to_str()
    if pieces == "sentencepiece":
        text = _bytes_as_plain_tokens(text)
    return text


def _bytes_as_plain_tokens(text: str) -> str:
    """Byte pieces are vocabulary, not special tokens: `<0x0A>` in a text stays those six characters."""
    import json

    content = json.loads(text)
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]
    return json.dumps(content)


def make_tokenizer(
    pieces: Pieces, special: tuple[str, ...], *, bos: str | None, eos: str | None, template: str | None
) -> Any:
    """A small transformers tokenizer with this template."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained(pieces, special, bos)), bos_token=bos, eos_token=eos
    )
    tokenizer.chat_template = template
    return tokenizer


def tokenizer_of(name: str, *, marked: bool = False) -> Any:
    """The tokenizer of a family, with the plain or the marked copy of its template."""
    family = FAMILIES[name]
    template = family.marked if marked else family.source
    return make_tokenizer(family.pieces, family.special, bos=family.bos, eos=family.eos, template=template)


def turns(*contents: str, system: str = "") -> tuple[Message, ...]:
    """Alternating messages, a user's first."""
    roles: tuple[Role, Role] = ("user", "assistant")
    talk = [Message(roles[i % 2], content) for i, content in enumerate(contents)]
    return (Message("system", system), *talk) if system else tuple(talk)
