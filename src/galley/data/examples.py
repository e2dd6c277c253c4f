"""The kinds of example that data is read into; every format yields these and every method takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `train` says whether an assistant turn is learned (formats may switch single turns off)."""

    role: Role
    content: str
    train: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of a chat. For task rows, `meta` carries what the task's own scorer needs."""

    messages: tuple[Message, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain text that is learned from its first to its last token."""

    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt without a chat template, and the text that should follow it."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """Something to classify: text, or an array of numbers such as an image [channels, height, width]."""

    input: str | np.ndarray[Any, Any]
    label: str


Example: TypeAlias = Conversation | Document | Completion | Labelled

ExampleKind: TypeAlias = Literal["conversation", "document", "completion", "labelled"]
"""The words for these kinds in messages and declarations."""
