"""Examples as token rows: encoded in bulk through the cache, cut to the longest length, and accounted for."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.base.cache import cache_folder
from galley.data.cache import Note, TokenChunk, TokenStore, token_store
from galley.data.encoder import TextEncoder
from galley.data.examples import Completion, Conversation, Document, Example
from galley.data.masks import MarkedText, TrainOn, encode_marked, select
from galley.data.samples import EncodeReport
from galley.data.template import Template

if TYPE_CHECKING:
    import numpy as np

    Int64Array = np.ndarray[Any, np.dtype[np.int64]]

CHUNK_ROWS = 2_000
CHUNK_CHARACTERS = 4_000_000
"""What a kill can cost: rows or text of one chunk, whichever comes first."""
_PROOF_ROWS = 256
_SHOWN_ROWS = 20


class TokenSamples:
    """Encoded rows of a dataset.

    Rows longer than `max_length` lose their end, except documents: these are learned in pieces that share one token,
    so that each token but a document's first is learned exactly once, always from its own document.

    Args:
        store: all tokens of all examples.
        max_length: longest row, in tokens.
        pieces: cut into pieces instead of losing the end.

    Raises:
        GalleyError: `data-empty` when nothing is left to learn, naming rows and setting.
    """

    def __init__(self, store: TokenStore, *, max_length: int, pieces: bool) -> None:
        import numpy as np

        assert max_length >= 2, "a row needs a token to predict another from"
        self._store = store
        full = np.diff(store.offsets)
        parts = np.maximum(1, -(-(full - 1) // (max_length - 1))) if pieces else np.ones_like(full)
        example = np.repeat(np.arange(len(full)), parts)
        number = np.arange(len(example)) - np.repeat(np.cumsum(parts) - parts, parts)
        start = store.offsets[:-1][example] + number * (max_length - 1)
        stop = np.minimum(start + max_length, store.offsets[1:][example])
        targets = _targets(store, start, stop)
        kept = targets > 0
        self.examples: Int64Array = example[kept]
        """The example that each row came from, [R]."""
        self._start, self._stop = start[kept], stop[kept]
        self.report = _report(full, example, start, stop, targets)
        if len(full) and not len(self.examples):
            raise _nothing_left(self.report, full, max_length)

    def __len__(self) -> int:
        return len(self._start)

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each row, [R]."""
        lengths: Int64Array = self._stop - self._start
        return lengths

    def ids(self, row: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Token ids of a row."""
        return self._store.ids[self._start[row] : self._stop[row]]

    def mask(self, row: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which tokens of a row are learned; never the first, which nothing predicts."""
        mask = self._store.mask[self._start[row] : self._stop[row]].astype(bool)
        mask[:1] = False
        return mask


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
        import numpy as np

        if not self._proved:
            self._prove()
        marked = [self._mark(row) for row in range(start, stop)]
        encoded = encode_marked(self.encoder, marked)
        lengths = np.fromiter((len(row.ids) for row in encoded), dtype=np.int64, count=len(encoded))
        ids = np.fromiter((token for row in encoded for token in row.ids), dtype=np.int32, count=int(lengths.sum()))
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
        step = max(1, len(self._examples) // _PROOF_ROWS)
        sample = range(0, len(self._examples), step)
        if self._template is not None:
            rows = (self._examples[row] for row in sample)
            if not self._template.prove([row for row in rows if isinstance(row, Conversation)]):
                self._counts["slow"] = 1
        else:
            self.encoder.prove([self._mark(row).text for row in sample])
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


def _targets(store: TokenStore, start: Int64Array, stop: Int64Array) -> Int64Array:
    """Learned tokens of each row, its first token not counted."""
    import numpy as np

    counts = np.zeros(len(start), dtype=np.int64)
    rows = np.flatnonzero(stop - start > 1)
    if len(rows):
        # reduceat sums from each index to the next: every other sum is a gap between rows, and the last has no end.
        borders = np.stack([start[rows] + 1, stop[rows]], axis=1).ravel()
        borders = borders[:-1] if borders[-1] == len(store.mask) else borders
        counts[rows] = np.add.reduceat(store.mask, borders, dtype=np.int64)[::2]
    return counts


def _report(
    full: Int64Array, example: Int64Array, start: Int64Array, stop: Int64Array, targets: Int64Array
) -> EncodeReport:
    import numpy as np

    kept = targets > 0
    # Pieces of one document share their border token; it is given again, not kept twice.
    repeated = np.concatenate([[False], example[1:] == example[:-1]])
    covered = np.zeros(len(full), dtype=np.int64)
    np.add.at(covered, example[kept], (stop - start - repeated)[kept])
    whole = np.zeros(len(full), dtype=bool)
    whole[example[kept]] = True
    cut = np.where(whole, full - covered, 0)
    lengths = (0, 0, 0)
    if len(full):
        median, high = np.percentile(full, [50, 95], method="inverted_cdf")
        lengths = (int(median), int(high), int(full.max()))
    return EncodeReport(
        rows_in=len(full),
        rows_kept=int(whole.sum()),
        rows_without_targets=int((~whole).sum()),
        rows_truncated=int((cut > 0).sum()),
        tokens_in=int(full.sum()),
        tokens_cut=int(cut.sum()),
        tokens_dropped=int(full[~whole].sum()),
        tokens_repeated=int((repeated & kept).sum()),
        supervised_tokens=int(targets.sum()),
        lengths=lengths,
        dropped_examples=tuple(np.flatnonzero(~whole)[:_SHOWN_ROWS].tolist()),
    )


def _nothing_left(report: EncodeReport, full: Int64Array, max_length: int) -> GalleyError:
    rows = ", ".join(str(row + 1) for row in report.dropped_examples[:5])
    more = ", ..." if report.rows_in > 5 else ""
    long = int((full > max_length).sum())
    why = f"{long} of them are longer than max_length = {max_length} tokens" if long else "none has an answer to learn"
    hint = f"raise override.max_length (the longest row has {report.lengths[2]} tokens)" if long else ""
    return GalleyError(
        "data-empty",
        f"nothing is left to learn in any of {report.rows_in} rows (rows {rows}{more}): {why}",
        hint=hint or "give every row an assistant turn or a completion that is trained on",
    )


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
    for name in ("encoder", "layouts", "masks", "template", "tokens", "turns"):
        spec = importlib.util.find_spec(f"galley.data.{name}")
        assert spec is not None
        assert spec.origin is not None
        parts.append(hashlib.blake2b(Path(spec.origin).read_bytes(), digest_size=8).hexdigest())
    return parts
