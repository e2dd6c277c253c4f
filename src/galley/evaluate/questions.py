"""Held-out rows as the models meet them: prompt ids as in training, and the answer that the data expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from galley.data.content import prompt_of
from galley.data.encoder import TextEncoder
from galley.data.examples import Completion, Conversation, Example, Labelled
from galley.data.template import Template
from galley.evaluate.scorers._text import expected_text


@dataclass(frozen=True)
class Question:
    """One held-out row.

    Args:
        row: its number among the held-out rows.
        example: the row.
        ids: token ids of its prompt; empty where nothing is asked.
    """

    row: int
    example: Example
    ids: tuple[int, ...] = ()

    @property
    def prompt(self) -> str:
        """What is asked, for people."""
        if isinstance(self.example, Labelled):
            given = self.example.input
            return given if isinstance(given, str) else f"{' x '.join(map(str, given.shape))} numbers"
        return prompt_of(self.example) or ""

    @property
    def expected(self) -> str:
        """What the data says."""
        return expected_text(self.example)


def prompt_ids(example: Example, tokenizer: Any, template: Template | None) -> tuple[int, ...]:
    """Ids that a model is given to answer the row; none for rows that ask nothing.

    Args:
        example: a held-out row.
        tokenizer: the run's tokenizer.
        template: its chat template; needed for conversations.
    """
    match example:
        case Conversation():
            assert template is not None, "conversations are asked through the template"
            answers = [at for at, turn in enumerate(example.messages) if turn.role == "assistant"]
            return tuple(template.prompt_ids(example.messages[: answers[-1]]))
        case Completion():
            encoder = TextEncoder(tokenizer)
            return (*encoder.opening_ids, *encoder.encode(example.prompt))
        case _:
            return ()


def questions(examples: Sequence[Example], tokenizer: Any) -> list[Question]:
    """The rows with their prompts."""
    template = Template(tokenizer) if any(isinstance(example, Conversation) for example in examples) else None
    return [Question(row, example, prompt_ids(example, tokenizer, template)) for row, example in enumerate(examples)]
