"""What a row says: for hashing, counting, and telling whether there is anything to learn in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from galley.data.examples import Completion, Conversation, Document, Example, Labelled

_WIDE = re.compile("[\u2e80-\U0010ffff]")


def texts_of(example: Example) -> tuple[str, ...]:
    """All texts of an example, in order."""
    match example:
        case Conversation():
            return tuple(message.content for message in example.messages)
        case Completion():
            return (example.prompt, example.completion)
        case Document():
            return (example.text,)
        case Labelled():
            return (example.input,) if isinstance(example.input, str) else ()


def size_of(example: Example) -> int:
    """Characters of an example; numbers of an array."""
    if isinstance(example, Labelled) and not isinstance(example.input, str):
        return int(example.input.size)
    return sum(map(len, texts_of(example)))


def letters(text: str) -> int:
    """Length of a text in Latin letters: a character of the scripts from U+2E80 on says as much as about four."""
    return len(text) + 3 * len(_WIDE.findall(text))


def wide_share(examples: Iterable[Example]) -> float:
    """Share of the characters from U+2E80 on: scripts that few tokenizers have long tokens for."""
    text = "".join(part for example in examples for part in texts_of(example))
    return len(_WIDE.findall(text)) / max(1, len(text))


def prompt_of(example: Example) -> str | None:
    """What comes before the last answer; None where nothing is asked."""
    match example:
        case Conversation():
            answers = [position for position, message in enumerate(example.messages) if message.role == "assistant"]
            before = example.messages[: answers[-1]] if answers else ()
            return "\n".join(message.content for message in before)
        case Completion():
            return example.prompt
        case _:
            return None


def has_something_to_learn(example: Example) -> bool:
    """Whether there is an answer, a text or a label, and a question where one belongs."""
    match example:
        case Conversation():
            asked = [message.content for message in example.messages if message.role == "user"]
            learned = [m.content for m in example.messages if m.role == "assistant" and m.train]
            return any(map(_filled, learned)) and (not asked or any(map(_filled, asked)))
        case Completion():
            return _filled(example.completion)
        case Document():
            return _filled(example.text)
        case Labelled():
            return bool(example.label) and (not isinstance(example.input, str) or _filled(example.input))


def _filled(text: str) -> bool:
    return bool(text) and not text.isspace()


def row_key(example: Example) -> int:
    """64-bit hash that is equal for rows that say the same, whatever their case and white space.

    What is to be classified counts without its label: the same text on both sides of a split is a leak under any label.
    """
    if isinstance(example, Labelled) and not isinstance(example.input, str):
        data = example.input.tobytes()
    else:
        said = "\0".join([" ".join(text.split()) for text in texts_of(example)])
        data = said.casefold().encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


class Fingerprint:
    """A running hash over rows and settings; sensitive to every character, to order and to roles."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, example: Example) -> None:
        """Take one more row into account."""
        parts: Iterable[str]
        match example:
            case Conversation():
                parts = [f"{m.role}{'' if m.train else '-'}\0{m.content}" for m in example.messages]
            case Labelled():
                parts = (*texts_of(example), example.label)
                if not isinstance(example.input, str):
                    self._hash.update(repr(example.input.shape).encode() + example.input.tobytes())
            case _:
                parts = texts_of(example)
        line = "\1".join(parts)
        data = line.encode("utf-8", "surrogatepass")
        self._hash.update(b"%d:" % len(data) + data)

    def add_settings(self, *settings: Any) -> None:
        """Take settings into account."""
        self._hash.update(repr(settings).encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()
