"""Text to token ids in bulk: exactly the tokenizer's own ids, with repeated pieces of text encoded once."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

MEMO_ENTRIES = 16_384
"""Repeated units that are remembered between calls; system prompts and role headers are far fewer."""

PROOF_CHARACTERS = 4_000
"""Of each text in a proof: a book says no more about special tokens than its first pages."""


class TextEncoder:
    """A tokenizer that encodes many texts fast.

    Special tokens cut a text into units that a tokenizer encodes independently of each other. Chat rows share most
    of their units (system prompt, headers, closings), so each distinct unit is encoded once. Whether a tokenizer
    really treats units independently is proved on real rows by `prove`, and whole texts are encoded where it does not.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._cut = _unit_pattern(tokenizer)
        self._memo: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of the text, without the tokenizer adding any of its own."""
        units = self.units(text)
        table = self.lookup(units)
        return [token for unit in units for token in table[unit]]

    def units(self, text: str) -> list[str]:
        """The text cut before every isolating special token; joined they give the text."""
        if self._cut is None:
            return [text] if text else []
        return [unit for unit in self._cut.split(text) if unit]

    def lookup(self, units: Iterable[str]) -> Mapping[str, list[int]]:
        """Token ids of each distinct unit."""
        counts = Counter(units)
        table = {unit: self._memo[unit] for unit in counts if unit in self._memo}
        fresh = [unit for unit in counts if unit not in table]
        for unit, ids in zip(fresh, self.encode_whole(fresh), strict=True):
            table[unit] = ids
            if counts[unit] > 1:
                self._memo[unit] = ids
        if len(self._memo) > MEMO_ENTRIES:
            self._memo.clear()
        return table

    def encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, given to the tokenizer as it is."""
        if not texts:
            return []
        if not self.tokenizer.is_fast:
            return [list(self.tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        backend = self.tokenizer.backend_tokenizer
        # Both may have been left on by another caller, or by the tokenizer's file.
        backend.no_truncation()
        backend.no_padding()
        return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def prove(self, texts: Sequence[str]) -> bool:
        """Check on these texts that units are independent; encode whole texts from now on when they are not."""
        if self._cut is None:
            return True
        texts = [text[:PROOF_CHARACTERS] for text in texts]
        exact = [self.encode(text) for text in texts] == self.encode_whole(texts)
        if not exact:
            self._cut = None
            self._memo.clear()
        return exact

    def continuation(self, before: str, text: str) -> list[int] | None:
        """Ids that continue those of `before` with the text, or None where this tokenizer cannot start in mid-text.

        Tokenizers that put a space before every text are asked behind an anchor, and the anchor's ids are removed.
        """
        ids_before, expected = self.encode(before), self._decode(self.encode(before + text))
        for anchor in ("", "\n", "x", ">", "1"):
            ids, head = self.encode(anchor + text), self.encode(anchor)
            if ids[: len(head)] == head and self._decode([*ids_before, *ids[len(head) :]]) == expected:
                return ids[len(head) :]
        return None

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def opening_ids(self) -> tuple[int, ...]:
        """What the tokenizer puts before a plain text by itself: its beginning-of-sequence token, or nothing."""
        bare = self.encode_whole(["a"])[0]
        full = list(self.tokenizer.encode("a", add_special_tokens=True))
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return tuple(full[:start])
        return ()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that decides about ids and about the template."""
        tokenizer = self.tokenizer
        content = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else json.dumps(tokenizer.get_vocab())
        parts = [content, repr(sorted(tokenizer.special_tokens_map.items())), str(tokenizer.chat_template)]
        return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _unit_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Matches the empty place before each special token that swallows no text around it."""
    if not tokenizer.is_fast:
        return None
    added = list(tokenizer.added_tokens_decoder.values())
    isolating = [
        token.content
        for token in added
        if token.special
        and not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        # A token inside a longer one would cut the longer one in two.
        and not any(token.content in other.content and token.content != other.content for other in added)
    ]
    if not isolating:
        return None
    return re.compile(f"(?={'|'.join(re.escape(content) for content in isolating)})")
