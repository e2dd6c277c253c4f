"""What an answer says, whatever its case, spaces and closing signs; and what the data expects."""

from __future__ import annotations

import unicodedata

from galley.data.examples import Completion, Conversation, Document, Example

_CLOSING = ".。!！?？,，;；:："
_QUOTES = "\"'`“”‘’«»*"


def normalised(text: str) -> str:
    """Compatible characters made one, case folded, white space single, quotes and closing punctuation off the ends."""
    words = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return words.strip(_QUOTES + _CLOSING + " ")


def expected_text(example: Example) -> str:
    """The answer of the data: the last assistant turn, the completion, the text, or the label."""
    match example:
        case Conversation():
            return next((turn.content for turn in reversed(example.messages) if turn.role == "assistant"), "")
        case Completion():
            return example.completion
        case Document():
            return example.text
        case _:
            return example.label
