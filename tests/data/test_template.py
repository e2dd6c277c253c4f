"""One template: the tokenizer's own ids, answers and closings learned, prompts exact prefixes (items 9 to 11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.chat_templates import (
    DROPPED_THOUGHT,
    FAMILIES,
    OPEN_END,
    OPENED_THOUGHT,
    SYSTEM_LAST,
    make_tokenizer,
    tokenizer_of,
    turns,
)
from galley.base import GalleyError
from galley.data.examples import Conversation, Message
from galley.data.masks import Encoded
from galley.data.template import Template

pytestmark = pytest.mark.tiny

CONVERSATIONS = [
    turns("What relation is Anna to Bert?", "mother"),
    turns("Hi.", "Hello, how are you?", "Fine  \n\n  really.", "Good: 1, 2, 3.", "Bye", "Bye!"),
    turns("你好，世界。", "Привет! 🙂 Straße", "code", "def f(x):\n    return x\n\nEnd."),
]
BOTH = [(name, marked) for name in FAMILIES for marked in (False, True)]


def learned(template: Template, encoded: Encoded) -> list[str]:
    """The learned spans as text."""
    decode = template.tokenizer.decode
    return [decode(encoded.ids[a:b], skip_special_tokens=False) for a, b in encoded.spans]


def dicts(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


@pytest.mark.parametrize(("name", "marked"), BOTH)
def test_ids_are_the_tokenizers_own_with_one_bos(name: str, marked: bool) -> None:
    template = Template(tokenizer_of(name, marked=marked))
    for messages in CONVERSATIONS:
        ids = template.encode(Conversation(messages)).ids
        oracle = tokenizer_of(name).apply_chat_template(dicts(messages), return_dict=False)
        if name == "zephyr-llama3":
            # The header's `|>` and the line break behind it are one token there, so prompt and answer are apart.
            assert template.tokenizer.decode(ids) == template.tokenizer.decode(oracle)
        else:
            assert ids == oracle
        bos = template.tokenizer.bos_token_id
        if name in ("llama3", "gemma", "mistral"):
            assert ids.count(bos) == 1
            assert ids[0] == bos


@pytest.mark.parametrize(("name", "marked"), BOTH)
def test_answers_and_their_closings_are_learned_and_nothing_else(name: str, marked: bool) -> None:
    family = FAMILIES[name]
    template = Template(tokenizer_of(name, marked=marked))
    for messages in CONVERSATIONS:
        answers = [message.content for message in messages if message.role == "assistant"]
        expected = [family.opening + answer + family.closing for answer in answers]
        if name == "qwen3":
            expected[-1] = "<think>\n\n</think>\n\n" + expected[-1]
        got = learned(template, template.encode(Conversation(messages)))
        if name == "zephyr-llama3":
            # The line break belongs to the header's last token, except where the last prompt must stay exact.
            expected[:-1] = [text.lstrip("\n") for text in expected[:-1]]
        # Sentence-piece decoders drop one space at the beginning of whatever they decode.
        assert [text.lstrip(" ") for text in got] == [text.lstrip(" ") for text in expected]


@pytest.mark.parametrize("name", FAMILIES)
def test_marked_and_unmarked_copies_give_one_mask(name: str) -> None:
    plain, marked = Template(tokenizer_of(name)), Template(tokenizer_of(name, marked=True))
    assert marked.has_markers
    assert not plain.has_markers
    for messages in CONVERSATIONS:
        one, other = plain.encode(Conversation(messages)), marked.encode(Conversation(messages))
        assert (one.ids, one.mask) == (other.ids, other.mask)
        assert any(one.mask)


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3"])
def test_mask_agrees_with_transformers_where_it_can_tell(name: str) -> None:
    tokenizer = tokenizer_of(name, marked=True)
    for messages in CONVERSATIONS:
        oracle = tokenizer.apply_chat_template(dicts(messages), return_assistant_tokens_mask=True, return_dict=True)
        expected = [bool(value) for value in oracle["assistant_masks"]]
        if name == "qwen3":
            # Its markers enclose the line break behind the closing, which no answer has.
            closing, line_break = tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.encode("\n")
            for i, token in enumerate(oracle["input_ids"][1:], start=1):
                if [token] == line_break and oracle["input_ids"][i - 1] == closing:
                    expected[i] = False
        assert Template(tokenizer).encode(Conversation(messages)).mask == expected


@pytest.mark.parametrize(("name", "marked"), BOTH)
def test_every_prompt_is_an_exact_prefix(name: str, marked: bool) -> None:
    template = Template(tokenizer_of(name, marked=marked))
    for messages in CONVERSATIONS:
        encoded = template.encode(Conversation(messages))
        prompt = template.prompt_ids(messages[:-1])
        assert encoded.ids[: len(prompt)] == prompt
        assert encoded.spans[-1][0] == len(prompt)


@pytest.mark.parametrize("name", FAMILIES)
def test_closing_token_is_learned_though_padding_is_the_same_token(name: str) -> None:
    tokenizer = tokenizer_of(name)
    tokenizer.pad_token = tokenizer.eos_token
    template = Template(tokenizer)
    encoded = template.encode(Conversation(CONVERSATIONS[1]))
    ends = [encoded.ids[stop - 1] for _, stop in encoded.spans]
    assert len(ends) == 3
    assert set(ends) <= set(template.stop_ids)
    assert tokenizer.convert_tokens_to_ids(FAMILIES[name].closing) in template.stop_ids
    assert tokenizer.eos_token_id in template.stop_ids


def test_turns_that_are_switched_off_are_context() -> None:
    template = Template(tokenizer_of("chatml"))
    question, wrong, again, right = turns("Hi.", "Wrong.", "Again", "Right.")
    off = Message("assistant", wrong.content, train=False)
    encoded = template.encode(Conversation((question, off, again, right)))
    assert learned(template, encoded) == ["Right.<|im_end|>"]
    last = template.encode(Conversation((question, wrong, again, Message("assistant", "Right.", train=False))))
    assert learned(template, last) == ["Wrong.<|im_end|>"]


def test_train_on() -> None:
    template = Template(tokenizer_of("llama3"))
    conversation = Conversation(CONVERSATIONS[1])
    assert learned(template, template.encode(conversation, "last")) == ["Bye!<|eot_id|>"]
    everything = template.encode(conversation, "all")
    assert everything.mask == [False] + [True] * (len(everything.ids) - 1)


def test_answer_that_would_merge_with_its_prompt_keeps_the_prompt_exact() -> None:
    messages = turns("Hi.", "Hello.", "Code?", "\ncode")
    tokenizer = make_tokenizer(
        "llama3", ("<|im_start|>", "<|im_end|>"), bos=None, eos="<|im_end|>", template=FAMILIES["chatml"].source
    )
    template = Template(tokenizer)
    encoded = template.encode(Conversation(messages))
    prompt = template.prompt_ids(messages[:-1])
    assert encoded.joined
    assert encoded.ids[: len(prompt)] == prompt
    assert tokenizer.decode(encoded.ids) == template.render(messages)
    assert learned(template, encoded)[-1] == "\ncode<|im_end|>"


def test_thoughts_of_earlier_turns_are_dropped_and_last_one_is_learned() -> None:
    template = Template(tokenizer_of("qwen3"))
    messages = turns("2 + 2?", "<think>\nadd\n</think>\n\n4", "3 + 3?", "<think>\nadd more\n</think>\n\n6")
    encoded = template.encode(Conversation(messages))
    assert learned(template, encoded) == ["4<|im_end|>", "<think>\nadd more\n</think>\n\n6<|im_end|>"]


def test_prompt_that_opens_a_thought_is_switched_off_for_all_users(tmp_path: Path) -> None:
    special = ("<|im_start|>", "<|im_end|>")
    template = Template(make_tokenizer("llama3", special, bos=None, eos="<|im_end|>", template=OPENED_THOUGHT))
    messages = turns("2 + 2?", "4")
    encoded = template.encode(Conversation(messages))
    assert learned(template, encoded) == ["4<|im_end|>"]
    assert encoded.ids[: len(template.prompt_ids(messages[:1]))] == template.prompt_ids(messages[:1])
    assert exported(template, tmp_path).prompt_ids(messages[:1]) == template.prompt_ids(messages[:1])


def exported(template: Template, folder: Path) -> Template:
    from transformers import AutoTokenizer

    template.tokenizer.save_pretrained(folder)
    return Template(AutoTokenizer.from_pretrained(folder))


def test_template_whose_answers_never_follow_their_prompt_is_refused() -> None:
    tokenizer = make_tokenizer("llama3", ("<s>", "</s>"), bos="<s>", eos="</s>", template=DROPPED_THOUGHT)
    with pytest.raises(GalleyError, match="generation prompt") as caught:
        Template(tokenizer)
    assert caught.value.code == "data-template"


def test_turns_that_a_template_rewrites_are_context_and_counted() -> None:
    special = ("<s>", "</s>", "[INST]", "[/INST]")
    template = Template(make_tokenizer("gpt2", special, bos="<s>", eos="</s>", template=SYSTEM_LAST))
    conversation = Conversation(turns("One?", "1", "Two?", "2", system="Count."))
    assert learned(template, template.encode(conversation)) == [" 2</s>"]
    assert template.mark(conversation).unlearned_turns == 1
    without = Conversation(turns("One?", "1", "Two?", "2"))
    assert learned(template, template.encode(without)) == [" 1</s>", " 2</s>"]


def test_answers_without_a_closing_get_the_end_token() -> None:
    special = ("<s>", "</s>", "<|user|>", "<|assistant|>")
    template = Template(make_tokenizer("gpt2", special, bos="<s>", eos="</s>", template=OPEN_END))
    encoded = template.encode(Conversation(turns("One?", "1", "Two?", "2")))
    assert [text for text in learned(template, encoded) if text] == ["1</s>", "2", "</s>"]
    assert encoded.ids.count(template.tokenizer.eos_token_id) == 2
    assert encoded.mask[-2:] == [True, True]


@pytest.mark.parametrize("messages", [turns("Hi", "Ho", system="Be kind."), (*turns("Hi"), *turns("Hi", "Ho"))])
def test_refused_messages_are_the_users_mistake(messages: tuple[Message, ...]) -> None:
    template = Template(tokenizer_of("gemma"))
    with pytest.raises(GalleyError, match=r"System role not supported|must alternate") as caught:
        template.encode(Conversation(messages))
    assert caught.value.code == "data-template"


@pytest.mark.parametrize("bos", [None, "<s>"])
def test_tokenizer_without_template_gets_the_plain_one_and_exports_it(bos: str | None, tmp_path: Path) -> None:
    template = Template(make_tokenizer("gpt2", ("<s>", "</s>"), bos=bos, eos="</s>", template=None))
    assert template.is_plain
    messages = turns("Hi.", "Hello.", "Bye.", "See you.", system="Be kind.")
    encoded = template.encode(Conversation(messages))
    assert learned(template, encoded) == ["Hello.</s>", "See you.</s>"]
    assert encoded.ids.count(template.tokenizer.convert_tokens_to_ids("<s>")) == (bos is not None)
    again = exported(template, tmp_path)
    assert not again.is_plain
    assert again.encode(Conversation(messages)) == encoded
    assert again.fingerprint == template.fingerprint


def test_tokenizer_without_template_and_end_is_refused() -> None:
    with pytest.raises(GalleyError, match="end-of-sequence"):
        Template(make_tokenizer("gpt2", ("<s>", "</s>"), bos="<s>", eos=None, template=None))


def test_fingerprint_sees_template_and_vocabulary() -> None:
    fingerprints = {Template(tokenizer_of(name)).fingerprint for name in ("chatml", "llama3", "zephyr", "qwen3")}
    assert len(fingerprints) == 4
    assert Template(tokenizer_of("chatml")).fingerprint == Template(tokenizer_of("chatml")).fingerprint


contents = st.one_of(
    st.sampled_from(["mother", "</think>x", " a ", "\nb", "", "<|im_end|>", "<think>", "[INST]", "user", "</s>", "\n"]),
    st.text(max_size=20),
)
conversations = st.lists(contents, min_size=2, max_size=6).map(lambda texts: turns(*texts[: len(texts) // 2 * 2]))


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(messages=conversations)
def test_any_content_encodes_the_same_fast_and_slowly(name: str, messages: tuple[Message, ...]) -> None:
    slow, fast = _ways(name)
    row = Conversation(messages)
    assert fast.mark(row) == slow.mark(row)
    encoded = fast.encode(row)
    assert encoded == slow.encode(row)
    prompt = slow.prompt_ids(messages[:-1])
    assert encoded.ids[: len(prompt)] == prompt, "invariant 4"
    if not encoded.joined:
        assert encoded.ids == slow.tokenizer.encode(slow.render(messages), add_special_tokens=False)


_KEPT: dict[str, tuple[Template, Template]] = {}


def _ways(name: str) -> tuple[Template, Template]:
    if name not in _KEPT:
        slow, fast = Template(tokenizer_of(name)), Template(tokenizer_of(name))
        assert fast.prove([Conversation(messages) for messages in CONVERSATIONS])
        _KEPT[name] = slow, fast
    return _KEPT[name]


def test_template_that_looks_into_contents_takes_the_slow_way() -> None:
    tokenizer = tokenizer_of("chatml")
    source = tokenizer.chat_template
    tokenizer.chat_template = source.replace("message['content'] +", "message['content'].replace('\\n\\n', '\\n') +")
    template = Template(tokenizer)
    rows = [Conversation(messages) for messages in CONVERSATIONS]
    assert not template.prove(rows)
    assert "Fine  \n  really." in template.mark(rows[1]).text
