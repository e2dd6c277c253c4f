"""Text from tokens as they come: whole characters only, and nothing that a stop text may still take back."""

from __future__ import annotations

from typing import Any

_UNFINISHED = "\ufffd"  # what tokenizers decode the first bytes of a character to


class TextStream:
    """Turns tokens into pieces of text whose concatenation is the decoded whole.

    Args:
        tokenizer: a transformers tokenizer.
        stop: texts that end the answer; they and what follows are never given out.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._ids: list[int] = []
        self._context = 0  # tokens before are settled; decoding needs a few before the new ones for its spaces
        self._given = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Take one more token; the text that is now certain, often empty."""
        self._ids.append(token)
        before = decode(self._tokenizer, self._ids[self._context : self._given])
        now = decode(self._tokenizer, self._ids[self._context :])
        if len(now) <= len(before) or now.endswith(_UNFINISHED):
            return ""
        self._context, self._given = self._given, len(self._ids)
        return self._release(now[len(before) :])

    def finish(self) -> str:
        """The text that was held back, once no token follows."""
        if self.stopped:
            return ""
        before = decode(self._tokenizer, self._ids[self._context : self._given])
        rest = decode(self._tokenizer, self._ids[self._context :])[len(before) :]
        self._context = self._given = len(self._ids)
        piece = self._release(rest)
        held, self._held = self._held, ""
        return piece + held

    def _release(self, piece: str) -> str:
        if self.stopped:
            return ""
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def decode(tokenizer: Any, ids: list[int]) -> str:
    """Text of the tokens, without special ones and with the spaces as they are."""
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that begins the stop text."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
