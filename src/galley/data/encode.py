"""Examples to token rows, in bulk and through the cache."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.base.cache import cache_folder
from galley.data.cache import Note, TokenChunk, token_store
from galley.data.encoder import TextEncoder
from galley.data.examples import Completion, Conversation, Document, Example
from galley.data.masks import MarkedText, TrainOn, encode_marked, select
from galley.data.template import Template
from galley.data.tokens import TokenSamples

CHUNK_ROWS = 2_000
CHUNK_CHARACTERS = 1_000_000
"""What a kill can cost, and what is in memory at once (tokenizers take some 150 bytes a character)."""
_PROOF_ROWS = 256


def encode_examples(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    max_length: int,
    train_on: TrainOn = "targets",
    note: Note,
) -> TokenSamples:
    """Encode conversations, completions or documents, through the token cache.

    Args:
        examples: of one kind.
        tokenizer: a transformers tokenizer.
        max_length: longest row, in tokens.
        train_on: which tokens are learned.
        note: told about rows that needed special care, and about the cache.

    Raises:
        GalleyError: `data-template` naming the row that a template refuses; `data-empty` when nothing is left.
    """
    chat = any(isinstance(example, Conversation) for example in examples)
    bulk = _Bulk(examples, Template(tokenizer) if chat else None, TextEncoder(tokenizer), train_on)
    key = _key(examples, bulk.encoder.fingerprint, train_on)
    store = token_store(key, list(_chunks(examples)), bulk.encode, root=cache_folder() / "tokens", note=note)
    _tell(store.counts, note)
    pieces = any(isinstance(example, Document) for example in examples)
    samples = TokenSamples(store, max_length=max_length, pieces=pieces)
    if samples.report.tokens_repeated:
        cut = Counter(samples.examples.tolist())
        note(
            "pieces",
            f"{sum(count > 1 for count in cut.values())} documents longer than {max_length} tokens are learned in "
            "pieces; no token is lost",
        )
    return samples


class _Bulk:
    """Encodes ranges of the examples; decides on the first call whether the fast ways are exact on these rows."""

    def __init__(
        self, examples: Sequence[Example], template: Template | None, encoder: TextEncoder, train_on: TrainOn
    ) -> None:
        self._examples = examples
        self._template = template
        self._train_on = train_on
        self._proved = False
        self._counts: Counter[str] = Counter()
        self.encoder = template.encoder if template is not None else encoder

    def encode(self, start: int, stop: int) -> TokenChunk:
        """Encode these rows."""
        # Collecting garbage walks over every row ever read, again and again, and finds none: a third of the time.
        was_on = gc.isenabled()
        gc.disable()
        try:
            return self._encode(start, stop)
        finally:
            if was_on:
                gc.enable()

    def _encode(self, start: int, stop: int) -> TokenChunk:
        import numpy as np

        if not self._proved:
            self._prove()
        marked = [self._mark(row) for row in range(start, stop)]
        encoded = encode_marked(self.encoder, marked)
        lengths = np.fromiter((len(row.ids) for row in encoded), dtype=np.int64, count=len(encoded))
        ids = np.fromiter(chain.from_iterable(row.ids for row in encoded), dtype=np.int32, count=int(lengths.sum()))
        mask = np.zeros(len(ids), dtype=np.uint8)
        for first, row in zip((np.cumsum(lengths) - lengths).tolist(), encoded, strict=True):
            for begin, end in row.spans:
                mask[first + begin : first + end] = 1
        counts, self._counts = self._counts, Counter()
        counts["joined"] = sum(row.joined for row in encoded)
        counts["unlearned_turns"] = sum(row.unlearned_turns for row in marked)
        return TokenChunk(ids, mask, lengths, counts)

    def _prove(self) -> None:
        """Compare the fast ways with the slow ones on rows from all over the data."""
        sample = range(0, len(self._examples), max(1, len(self._examples) // _PROOF_ROWS))
        marked = [self._mark(row) for row in sample]
        if self._template is None:
            self.encoder.prove([row.text for row in marked])
        else:
            rows = (self._examples[row] for row in sample)
            if not self._template.prove([row for row in rows if isinstance(row, Conversation)]):
                self._counts["slow"] = 1
        self._proved = True

    def _mark(self, row: int) -> MarkedText:
        example = self._examples[row]
        if isinstance(example, Conversation):
            assert self._template is not None
            try:
                return self._template.mark(example, self._train_on)
            except GalleyError as error:
                raise GalleyError(error.code, f"row {row + 1}: {error.message}", hint=error.hint) from error
        if isinstance(example, Document):
            return MarkedText(example.text, ((0, len(example.text)),), opening=True, closing=True)
        assert isinstance(example, Completion)
        text, border = example.prompt + example.completion, len(example.prompt)
        whole = MarkedText(text, ((border, len(text)),), prompt_end=border or None, opening=True, closing=True)
        return select(whole, self._train_on)


def _tell(counts: Counter[str], note: Note) -> None:
    if counts["joined"]:
        note(
            "joined",
            f"in {counts['joined']} rows the answer begins with white space or a sign that the tokenizer "
            "would merge with the prompt; prompt and answer are encoded apart, as when the model answers",
        )
    if counts["unlearned_turns"]:
        note(
            "unlearned-turns",
            f"{counts['unlearned_turns']} assistant turns are context only, since the chat template "
            "writes them otherwise once the conversation has gone on",
        )
    if counts["slow"]:
        note("fallback", "the chat template looks into contents; every row is rendered by it, which takes longer")


def _chunks(examples: Sequence[Example]) -> Iterator[tuple[int, int]]:
    start = characters = 0
    for row, example in enumerate(examples):
        characters += sum(map(len, _texts(example)))
        if row + 1 - start >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield start, row + 1
            start, characters = row + 1, 0
    if start < len(examples):
        yield start, len(examples)


def _texts(example: Example) -> list[str]:
    match example:
        case Conversation():
            return [message.content for message in example.messages]
        case Document():
            return [example.text]
        case Completion():
            return [example.prompt, example.completion]
    raise GalleyError(
        "data-format",
        "rows to classify have no text to continue",
        hint="use `task: classify`, or data with questions and answers or documents",
    )


def all_texts(examples: Sequence[Example]) -> Iterator[str]:
    """Every text of the examples, for training a tokenizer on them."""
    for example in examples:
        yield from _texts(example)


def _key(examples: Sequence[Example], tokenizer: str, train_on: str) -> str:
    """Hash of everything that decides about the tokens: content, tokenizer and template, settings, and code."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (tokenizer, train_on, *_code()):
        digest.update(f"{len(part)}:{part}".encode())
    for example in examples:
        fields: list[Any] = [type(example).__name__, *_texts(example)]
        if isinstance(example, Conversation):
            fields += [(message.role, message.train) for message in example.messages]
        digest.update(repr(fields).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _code() -> list[str]:
    """Versions of what makes the tokens: libraries, and our own files by their content."""
    parts = [f"{name} {metadata.version(name)}" for name in ("tokenizers", "transformers", "jinja2")]
    for name in ("encode", "encoder", "layouts", "masks", "template", "turns"):
        spec = importlib.util.find_spec(f"galley.data.{name}")
        assert spec is not None
        assert spec.origin is not None
        parts.append(hashlib.blake2b(Path(spec.origin).read_bytes(), digest_size=8).hexdigest())
    return parts
