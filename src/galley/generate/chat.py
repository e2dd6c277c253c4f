"""A conversation with a model: the same template as in training, answers as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from galley.base import GalleyError
from galley.data.encoder import TextEncoder
from galley.data.examples import Message
from galley.data.template import Template
from galley.generate.generator import Generator
from galley.generate.settings import Sampling

Note: TypeAlias = Callable[[str, str], None]
"""Receives (kind, message) about something that the user should know."""

_RESERVED_SHARE = 4  # at least a quarter of the context is left for an answer, unless answers are shorter anyway


def say_nothing(kind: str, message: str) -> None:
    """For callers without a listener."""


class ChatSession:
    """Questions and answers that remember what was said.

    Args:
        generator: generates the answers.
        template: the model's chat template; None for a model without one, which then continues each text by itself.
        settings: how to generate; its stop tokens are the template's when it names none.
        system: system message before the conversation.
        on_note: told when old turns are forgotten.
    """

    def __init__(
        self,
        generator: Generator,
        template: Template | None,
        *,
        settings: Sampling,
        system: str | None = None,
        on_note: Note = say_nothing,
    ) -> None:
        self.messages: list[Message] = [] if system is None else [Message("system", system)]
        self._system = system
        self._generator = generator
        self._template = template
        self._settings = settings
        self._on_note = on_note

    def ask(self, text: str) -> Iterator[str]:
        """Pieces of the answer as they come. The turn is remembered once the answer is complete or abandoned.

        Raises:
            GalleyError: `prompt-too-long` when this message alone fills the model's context; nothing is forgotten for
                it, and the conversation can go on.
        """
        if self._template is None:
            encoder = TextEncoder(self._generator.tokenizer)
            prompt = [*encoder.opening_ids, *encoder.encode(text)]
            yield from self._generator.stream(prompt, self._settings)
            return
        before = list(self.messages)
        self.messages.append(Message("user", text))
        try:
            prompt, forgotten = self._fitting_prompt(self._template)
            settings = self._generator.with_stop_ids(self._settings, self._template.stop_ids)
            stream = self._generator.stream(prompt, settings)
        except GalleyError:
            self.messages = before
            raise
        if forgotten:
            turns = "1 old question and answer is" if forgotten == 1 else f"{forgotten} old questions and answers are"
            self._on_note("forgotten", f"{turns} forgotten: the model reads {self._generator.context} tokens in all")
        answer = ""
        try:
            for piece in stream:
                answer += piece
                yield piece
        finally:
            self.messages.append(Message("assistant", answer))

    def restarted(self) -> ChatSession:
        """A new conversation with the same model, settings and system message."""
        return ChatSession(
            self._generator, self._template, settings=self._settings, system=self._system, on_note=self._on_note
        )

    def _fitting_prompt(self, template: Template) -> tuple[list[int], int]:
        """Ids of the conversation without its oldest turns where all of it would not fit, and how many those are."""
        context = self._generator.context
        prompt = template.prompt_ids(self.messages)
        if context is None:
            return prompt, 0
        room = context - min(self._settings.max_new_tokens, context // _RESERVED_SHARE)
        first = len(self.messages) - len(self.spoken)
        forgotten = 0
        while len(prompt) > room and len(self.spoken) > 1:
            del self.messages[first : first + 2]
            forgotten += 1
            prompt = template.prompt_ids(self.messages)
        return prompt, forgotten

    @property
    def spoken(self) -> list[Message]:
        """The turns of the conversation, without the system message."""
        return [message for message in self.messages if message.role != "system"]
