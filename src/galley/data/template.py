"""The one chat template: the same token ids in training, evaluation, rollout, chat, serving and exported files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from galley.base import GalleyError
from galley.data.encoder import TextEncoder
from galley.data.examples import Conversation, Message
from galley.data.layouts import Layouts
from galley.data.masks import Encoded, MarkedText, Span, TrainOn, encode_marked, select
from galley.data.turns import PROBE, mark_conversation

PLAIN_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '### ' + message['role'] | capitalize + ':\n' + message['content'] | trim -}}"
    "{{- eos_token + '\n\n' if message['role'] == 'assistant' else '\n\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '### Assistant:\n' -}}{%- endif -%}"
)
"""Used for tokenizers that have no chat template: a heading for each turn, answers closed by the end token."""

_VARIANTS = ("", "{%- set enable_thinking = false -%}")
"""Tried in this order: a template that begins an answer by opening a thought cannot be trained on plain answers unless
thinking is switched off, and then it is switched off inside the template, for every user of it."""

_QUESTION = (Message("user", "hi"),)

_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")


class Template:
    """How messages become tokens. Made from the tokenizer, and kept in it, so that exports carry it.

    A tokenizer without a chat template is given `PLAIN_TEMPLATE`; its `chat_template` is set by this.

    Args:
        tokenizer: a transformers tokenizer.

    Raises:
        GalleyError: `data-template` when no answer can be told from its prompt with this template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.is_plain = tokenizer.chat_template is None
        if self.is_plain:
            tokenizer.chat_template = _plain_template(tokenizer)
        self.stops: tuple[str, ...] = ()
        self._choose_variant()
        self.encoder = TextEncoder(tokenizer)
        self._layouts = Layouts(self._mark_slowly, self.source)

    @property
    def source(self) -> str:
        """The Jinja text."""
        source: str = self.tokenizer.get_chat_template()
        return source

    @cached_property
    def has_markers(self) -> bool:
        """Whether the template marks generated text by itself."""
        return _MARKER.search(self.source) is not None

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        ids = (self.tokenizer.convert_tokens_to_ids(stop) for stop in self.stops)
        return tuple(dict.fromkeys(ids))

    @property
    def fingerprint(self) -> str:
        """Hash of template and tokenizer: equal fingerprints give equal ids."""
        return self.encoder.fingerprint

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
        """The text of the messages.

        Raises:
            GalleyError: `data-template`, with the template's own words, when it refuses them.
        """
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return str(self._apply(turns, tokenize=False, add_generation_prompt=add_generation_prompt))

    def render_generated(self, messages: Sequence[Message]) -> tuple[str, list[Span]]:
        """The text, and the spans that the template's own markers enclose."""
        from transformers.utils.chat_template_utils import render_jinja_template

        turns = [{"role": message.role, "content": message.content} for message in messages]
        texts, spans = self._guarded(
            render_jinja_template,
            conversations=[turns],
            chat_template=self.source,
            return_assistant_tokens_mask=True,
            **self.tokenizer.special_tokens_map,
        )
        return texts[0], [(int(start), int(stop)) for start, stop in spans[0]]

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """The ids that a model is given to answer these messages; an exact prefix of the ids that it is trained on."""
        return self.encoder.encode(self.render(messages, add_generation_prompt=True))

    def mark(self, conversation: Conversation, train_on: TrainOn = "targets") -> MarkedText:
        """The text of a conversation with what is learned of it.

        Raises:
            GalleyError: `data-template` when the template refuses the conversation or its last answer is not found.
        """
        return select(self._layouts.mark(conversation), train_on)

    def encode(self, conversation: Conversation, train_on: TrainOn = "targets") -> Encoded:
        """Ids of a whole conversation, and which of them are learned.

        Raises:
            GalleyError: `data-template`, as `mark`.
        """
        return encode_marked(self.encoder, [self.mark(conversation, train_on)])[0]

    def prove(self, conversations: Sequence[Conversation]) -> bool:
        """Take the fast way for many rows if it gives what the slow way gives on these; whether it does."""
        exact = self._layouts.prove(conversations)
        return self.encoder.prove([self._layouts.mark(row).text for row in conversations]) and exact

    def _mark_slowly(self, conversation: Conversation) -> MarkedText:
        return mark_conversation(self, conversation.messages)

    def _apply(self, turns: list[dict[str, str]], **options: Any) -> Any:
        return self._guarded(self.tokenizer.apply_chat_template, turns, **options)

    def _guarded(self, function: Any, *args: Any, **options: Any) -> Any:
        import jinja2

        try:
            return function(*args, **options)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise GalleyError(
                "data-template",
                f"the chat template refuses the messages: {error or type(error).__name__}",
                hint="roles must alternate as the template expects; some templates know no system or tool messages",
            ) from error

    def _choose_variant(self) -> None:
        """Keep the first way of asking whose prompt is how an answer begins: in tokens, or at least in text."""
        source = self.source
        rated = {variant: self._rate(variant + source) for variant in _VARIANTS}
        best = max(_VARIANTS, key=lambda variant: rated[variant])
        self.tokenizer.chat_template = best + source if rated[best] else source
        if not rated[best]:
            raise GalleyError(
                "data-template",
                "with this chat template an answer cannot be told from its prompt: the generation prompt is not how it "
                "begins an assistant turn",
                hint="give the model another chat template (chat_template.jinja beside its tokenizer)",
            )
        _, _, behind = self.render([*_QUESTION, Message("assistant", PROBE)]).partition(PROBE)
        self.stops = _stops(self.tokenizer, behind)

    def _rate(self, source: str) -> int:
        """2 when prompt ids begin the ids of prompt and answer, 1 when this holds only for the text, else 0."""
        self.tokenizer.chat_template = source
        text = self.render([*_QUESTION, Message("assistant", PROBE)])
        prompt = self.render(_QUESTION, add_generation_prompt=True)
        if PROBE not in text or not text.startswith(prompt):
            return 0
        whole, part = TextEncoder(self.tokenizer).encode_whole([text, prompt])
        return 2 if whole[: len(part)] == part else 1


def _plain_template(tokenizer: Any) -> str:
    if tokenizer.eos_token is None:
        raise GalleyError(
            "data-template",
            "the tokenizer has neither a chat template nor an end-of-sequence token to close answers with",
            hint="give the tokenizer an eos_token or a chat template",
        )
    opens = tokenizer.bos_token is not None and TextEncoder(tokenizer).opening_ids == (tokenizer.bos_token_id,)
    return ("{{- bos_token -}}" if opens else "") + PLAIN_TEMPLATE


def _stops(tokenizer: Any, behind: str) -> tuple[str, ...]:
    """Texts that end an answer: the added token that the template writes behind one, and the end token."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    closing = [content for content in added if content.strip() and behind.lstrip().startswith(content)]
    end = [tokenizer.eos_token] if tokenizer.eos_token else []
    return tuple(dict.fromkeys([*sorted(closing, key=len)[-1:], *end]))
