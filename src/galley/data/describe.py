"""What was read, as facts and as a page: rows, columns, lengths, duplicates, leakage, truncation, two examples."""

from __future__ import annotations

import textwrap
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from galley.data.content import size_of
from galley.data.dataset import Dataset
from galley.data.examples import Completion, Conversation, Document, Example, Labelled

if TYPE_CHECKING:
    from galley.data.samples import EncodeReport
    from galley.data.template import Template

SHOWN_EXAMPLES = 2
SHOWN_CHARACTERS = 1_200
"""Characters of an example that a page shows; the middle of longer ones is left out."""
_KIND_WORDS = {
    "conversation": "conversations",
    "completion": "prompts with completions",
    "document": "documents",
    "labelled": "rows with labels",
}
_LEARNED = "\x1b[32m"
_FAINT = "\x1b[2m"
_BOLD = "\x1b[1m"
_RESET = "\x1b[0m"


class Segment(NamedTuple):
    """A stretch of an example's text, all of it learned or none."""

    text: str
    learned: bool


class Lengths(NamedTuple):
    """Median, 95th percentile and longest of the training rows."""

    p50: int
    p95: int
    max: int


@dataclass(frozen=True)
class Description:
    """Facts about a dataset. Token facts are None when no tokenizer was given.

    Args:
        labels: rows of each class, for labelled data.
        examples: the first training rows as segments; empty for arrays.
    """

    sources: tuple[str, ...]
    format: str
    columns: dict[str, str]
    example_kind: str
    rows: int
    held_out_rows: int
    characters: Lengths
    tokens: Lengths | None
    supervised_tokens: int | None
    truncated_rows: int | None
    cut_tokens: int | None
    rows_without_targets: int | None
    max_length: int | None
    duplicates: int
    leaked: int
    empty: int
    labels: dict[str, int]
    notes: tuple[str, ...]
    fingerprint: str
    examples: tuple[tuple[Segment, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        facts = asdict(self) | {"sources": list(self.sources), "notes": list(self.notes)}
        for name in ("characters", "tokens"):
            lengths = getattr(self, name)
            facts[name] = None if lengths is None else lengths._asdict()
        facts["examples"] = [[segment._asdict() for segment in example] for example in self.examples]
        return facts


def describe(
    dataset: Dataset,
    *,
    template: Template | None = None,
    report: EncodeReport | None = None,
    max_length: int | None = None,
) -> Description:
    """Collect the facts about a dataset.

    Args:
        dataset: as `read` gives it.
        template: renders conversations the way they are trained on; without it roles are written before the turns.
        report: what encoding the training rows found, for the facts about tokens.
        max_length: the limit that the report was made with, in tokens.
    """
    facts = dataset.statistics
    shown = [example for example in dataset.train[:SHOWN_EXAMPLES] if _is_text(example)]
    counts = Counter(example.label for example in dataset.train if isinstance(example, Labelled))
    return Description(
        sources=dataset.sources,
        format=dataset.format,
        columns=dict(dataset.columns),
        example_kind=facts.example_kind,
        rows=facts.rows,
        held_out_rows=facts.held_out_rows,
        characters=percentiles([size_of(example) for example in dataset.train]),
        tokens=None if report is None else Lengths(*report.lengths),
        supervised_tokens=None if report is None else report.supervised_tokens,
        truncated_rows=None if report is None else report.rows_truncated,
        cut_tokens=None if report is None else report.tokens_cut + report.tokens_dropped,
        rows_without_targets=None if report is None else report.rows_without_targets,
        max_length=max_length,
        duplicates=facts.duplicates,
        leaked=facts.leaked,
        empty=facts.empty,
        labels={label: counts[label] for label in facts.labels},
        notes=dataset.notes,
        fingerprint=dataset.fingerprint,
        examples=tuple(segments(example, template) for example in shown),
    )


def percentiles(sizes: Sequence[int]) -> Lengths:
    """Median, 95th percentile (the nearest rank, so a length that occurs) and longest."""
    ordered = sorted(sizes)
    if not ordered:
        return Lengths(0, 0, 0)
    last = len(ordered) - 1
    return Lengths(ordered[last // 2], ordered[-(-last * 95 // 100)], ordered[-1])


def segments(example: Example, template: Template | None = None) -> tuple[Segment, ...]:
    """An example's text, divided into what is learned and what is only read."""
    match example:
        case Conversation() if template is not None:
            marked = template.mark(example)
            return _divide(marked.text, marked.spans)
        case Conversation():
            turns = []
            for message in example.messages:
                learned = message.role == "assistant" and message.train
                turns += [Segment(f"{message.role}: ", False), Segment(message.content, learned), Segment("\n", False)]
            return tuple(turns[:-1])
        case Completion():
            return (Segment(example.prompt, False), Segment(example.completion, True))
        case Document():
            return (Segment(example.text, True),)
        case Labelled():
            text = example.input if isinstance(example.input, str) else f"array {list(example.input.shape)}"
            return (Segment(f"{text}\n", False), Segment(example.label, True))


def _divide(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Segment, ...]:
    pieces, at = [], 0
    for start, stop in spans:
        pieces += [Segment(text[at:start], False), Segment(text[start:stop], True)]
        at = stop
    return tuple(piece for piece in [*pieces, Segment(text[at:], False)] if piece.text)


def _is_text(example: Example) -> bool:
    return not isinstance(example, Labelled) or isinstance(example.input, str)


def render(description: Description, *, width: int = 100, color: bool = False) -> str:
    """The page of `galley data`: facts, notes and examples.

    Args:
        description: the facts.
        width: columns of the terminal.
        color: colour what is learned; without it, learned text stands between guillemets.
    """
    lines = [f"{name:<14} {value}" for name, value in _facts(description)]
    page = [wrapped for line in lines for wrapped in _wrap(line, width, "               ")]
    page += [wrapped for note in description.notes for wrapped in _wrap(f"note: {note}", width, "      ")]
    for number, example in enumerate(description.examples, 1):
        legend = "learned text is green" if color else "learned text stands between « and »"
        title = f"example {number}" + (f" ({legend})" if number == 1 else "")
        page += ["", f"{_BOLD}{title}{_RESET}" if color else title]
        page += [_paint(example, color)]
    return "\n".join(page)


def _facts(facts: Description) -> list[tuple[str, str]]:
    more = f" and {len(facts.sources) - 3} more" if len(facts.sources) > 3 else ""
    rows = f"{facts.rows:,} to train on, {facts.held_out_rows:,} held out"
    lines = [
        ("read", f"{', '.join(facts.sources[:3])}{more}"),
        ("format", f"{facts.format} ({_KIND_WORDS[facts.example_kind]})"),
        ("columns", ", ".join(f"{role} from {column!r}" for role, column in facts.columns.items())),
        ("rows", rows),
        ("characters" if facts.examples else "numbers", _lengths(facts.characters)),
    ]
    if facts.tokens is not None:
        lines.append(("tokens", f"{_lengths(facts.tokens)}; {facts.supervised_tokens:,} learned"))
        lines.append(("truncation", _truncation(facts)))
    lines += [
        ("duplicates", f"{_rows(facts.duplicates)} like an earlier one" if facts.duplicates else "none"),
        (
            "leakage",
            f"{facts.leaked:,} held out that stood in training, and were taken out there" if facts.leaked else "none",
        ),
        ("empty", f"{_rows(facts.empty)} dropped" if facts.empty else "none"),
        ("classes", ", ".join(f"{label} ({count:,})" for label, count in facts.labels.items())),
    ]
    return [(name, value) for name, value in lines if value]


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _lengths(lengths: Lengths) -> str:
    return f"p50 {lengths.p50:,}, p95 {lengths.p95:,}, max {lengths.max:,}"


def _truncation(facts: Description) -> str:
    limit = f" at {facts.max_length:,} tokens" if facts.max_length else ""
    if not facts.truncated_rows and not facts.rows_without_targets:
        return f"none{limit}"
    dropped = (
        f", {_rows(facts.rows_without_targets)} dropped with nothing left to learn"
        if facts.rows_without_targets
        else ""
    )
    return f"{_rows(facts.truncated_rows or 0)} cut{limit}{dropped}; {facts.cut_tokens:,} tokens lost"


def _wrap(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line, max(width, 40), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    ) or [""]


def _paint(example: Sequence[Segment], color: bool) -> str:
    """The text with its learned stretches marked, and the middle left out when it is long."""
    budget = SHOWN_CHARACTERS - sum(min(len(segment.text), SHOWN_CHARACTERS // 4) for segment in example)
    painted = []
    for segment in example:
        least = min(len(segment.text), SHOWN_CHARACTERS // 4)
        room = least + max(0, min(budget, len(segment.text) - least))
        budget -= room - least
        text = _printable(_shorten(segment.text, room))
        if not color:
            painted.append(f"«{text}»" if segment.learned else text)
        else:
            painted.append(f"{_LEARNED if segment.learned else _FAINT}{text}{_RESET}")
    return "".join(painted)


def _shorten(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"


def _printable(text: str) -> str:
    """Control characters as visible signs: data must not move the cursor or change the terminal's colours."""
    return "".join(
        sign
        if sign in "\n\t" or unicodedata.category(sign) != "Cc"
        else chr(0x2400 + ord(sign))
        if ord(sign) < 32
        else "␦"
        for sign in text
    )
