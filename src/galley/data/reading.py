"""Read what a recipe names: find the sources and their format, drop what is empty, hold rows out, say what was done."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

from galley.base import GalleyError
from galley.data.containers import SUFFIXES, table_options
from galley.data.content import Fingerprint, has_something_to_learn, prompt_of, row_key, size_of, wide_share
from galley.data.dataset import Dataset, DataStatistics, Scorer
from galley.data.examples import Completion, Conversation, Document, Example, Labelled, Message
from galley.data.sniff import UNREADABLE, unreadable
from galley.data.source import FORMATS, Format, Request, Row, Source, check_options
from galley.data.sources import open_sources
from galley.data.split import FEWEST_ROWS, held_out_keys

if TYPE_CHECKING:
    from galley.recipe.schema import DataSection, EvaluateSection

KINDS = {Conversation: "conversation", Document: "document", Completion: "completion", Labelled: "labelled"}
_SHOWN_ROWS = 5
_SURE = 0.5
_SAMPLE_ROWS = 200


@dataclass
class _Rows:
    """Examples of one side with what was found while reading them."""

    examples: list[Example] = field(default_factory=list)
    keys: array[int] = field(default_factory=lambda: array("Q"))
    empty: int = 0
    first_empty: list[str] = field(default_factory=list)
    scorer: Scorer | None = None
    sources: tuple[str, ...] = ()
    format: str = ""
    request: Request = field(default_factory=lambda: Request("chat"))

    def without(self, keys: frozenset[int] | set[int]) -> list[Example]:
        """The examples whose key is not among these."""
        return list(compress(self.examples, (key not in keys for key in self.keys)))

    def within(self, keys: frozenset[int]) -> list[Example]:
        """The examples whose key is among these."""
        return list(compress(self.examples, (key in keys for key in self.keys)))


def read(section: DataSection, *, task: str, evaluate: EvaluateSection, seed: int = 0) -> Dataset:
    """Read and split the data of a recipe. Imports nothing heavy for CSV, JSON and text.

    Args:
        section: what to read.
        task: `chat`, `complete` or `classify`.
        evaluate: what is held out.
        seed: seed of generated data; the split does not depend on it.

    Returns:
        Training and held-out rows with statistics. No held-out row stands in the training rows.

    Raises:
        GalleyError: one of the `data-` codes, naming file, row and field.
    """
    sources = _open(section.path, section, seed)
    chosen = _choose_format(sources, section.format, task)
    rows = _collect(sources, chosen, section, task, section.rows)
    fresh = sources[0].unseen
    leaked: set[int] = set()
    if isinstance(evaluate.held_out, str):
        held = _collect(_open(evaluate.held_out, section, seed), chosen, section, task)
        train, leaked = _drop_leaked(rows, held)
        held_out = held.examples
    elif fresh is not None and evaluate.held_out > 0:
        # Generated rows cost nothing: training keeps all of its rows, and the verdict gets as many as it asks for.
        count = len(rows.examples)
        wanted = max(round(evaluate.held_out * count), min(evaluate.rows, count // 2), 1)
        held = _collect([fresh(wanted)], chosen, section, task)
        train, leaked = _drop_leaked(rows, held)
        held_out = held.examples
    else:
        held = _Rows()
        keys = held_out_keys(rows.keys, evaluate.held_out)
        train, held_out = (rows.without(keys), rows.within(keys)) if keys else (rows.examples, [])
    _refuse_empty(train, rows, leaked)
    leaked_rows = sum(key in leaked for key in held.keys) if leaked else 0
    notes = _reading_notes(rows, held) + _split_notes(rows, train, held_out, leaked_rows, evaluate.held_out)
    return Dataset(
        train=train,
        held_out=held_out,
        statistics=_statistics(train, held_out, rows, held, leaked_rows),
        fingerprint=_fingerprint(train, held_out, section, task),
        format=chosen.name,
        sources=rows.sources,
        columns=dict(rows.request.used_columns),
        scorer=rows.scorer,
        notes=tuple(notes),
    )


def _open(reference: str, section: DataSection, seed: int) -> list[Source]:
    return open_sources(reference, options=section.options, split=section.split, rows=section.rows, seed=seed)


def _choose_format(sources: Sequence[Source], wanted: str | None, task: str) -> Format:
    """The format that the user names, or the one that is surest of the first source and agrees with the others."""
    if wanted is not None:
        chosen = FORMATS.get(wanted)
    else:
        found = [_surest(source, task) for source in sources]
        chosen = found[0]
        for source, other in zip(sources, found, strict=True):
            if other.name != chosen.name:
                raise GalleyError(
                    "data-format",
                    f"{sources[0].name} is of the format {chosen.name}, but {source.name} of the format {other.name}",
                    hint="read them apart, or name files of one kind with a glob such as `data: folder/*.csv`",
                )
    if task not in chosen.tasks:
        raise GalleyError(
            "data-format",
            f"{sources[0].name}: the format {chosen.name} gives no examples for the task {task}",
            hint=f"it is for `task: {'` or `'.join(chosen.tasks)}`",
        )
    return chosen


def _surest(source: Source, task: str) -> Format:
    confidence, best = max(_confidences(source, task, _own_formats()), key=itemgetter(0))
    if confidence < _SURE:  # formats of other packages: finding them takes longer than reading most files
        confidence, best = max(_confidences(source, task, tuple(FORMATS)), key=itemgetter(0))
    if confidence > 0:
        return best
    if source.records is not None and not source.sample:
        raise GalleyError("data-empty", f"{source.name}: there are no rows in it")
    raise GalleyError(
        "data-format",
        f"{source.name}: no format recognises this data",
        hint=f"name one with `data: {{path: ..., format: ...}}`: {', '.join(FORMATS.names())}",
    )


@cache
def _own_formats() -> tuple[Format, ...]:
    return tuple(map(FORMATS.get, FORMATS.own_names()))


def _confidences(source: Source, task: str, formats: Sequence[Format]) -> Iterator[tuple[float, Format]]:
    return ((entry.detect(source, task), entry) for entry in formats)


def _collect(
    sources: Sequence[Source], chosen: Format, section: DataSection, task: str, limit: int | None = None
) -> _Rows:
    """All rows of the sources that hold something to learn, with their keys."""
    request = Request(task, section.columns, section.options, num_sources=len(sources))
    rows = _Rows(sources=tuple(source.name for source in sources), format=chosen.name, request=request)
    examples, keys = rows.examples, rows.keys
    kind: type | None = None
    for source in sources:
        _check_options(source, chosen, section)
        request.notes.extend(source.notes)
        rows.scorer = rows.scorer or source.scorer
        for number, example in _rows_of(source, chosen, request):
            if limit is not None and len(examples) >= limit:
                return rows
            if not has_something_to_learn(example):
                rows.empty += 1
                if len(rows.first_empty) < _SHOWN_ROWS:
                    rows.first_empty.append(f"{source.name}, row {number}")
                continue
            kind = kind or type(example)
            if type(example) is not kind:
                raise GalleyError(
                    "data-format", f"{source.name}, row {number}: {KINDS[type(example)]} rows among {KINDS[kind]} rows"
                )
            kept = example if section.system is None else _with_system(example, section.system, request)
            examples.append(kept)
            keys.append(row_key(kept))
    return rows


def _rows_of(source: Source, chosen: Format, request: Request) -> Iterator[Row]:
    try:
        yield from chosen.rows(source, request)
    except UNREADABLE as error:
        raise unreadable(source.name, error) from error


def _check_options(source: Source, chosen: Format, section: DataSection) -> None:
    if source.scheme == "reasoning-gym":
        return  # the task itself checks them
    own = table_options(source.suffix) if source.suffix in SUFFIXES else ()
    extra = ("config",) if source.scheme == "hub" else ()
    check_options(section.options, (*own, *extra, *chosen.options), f"{source.name} (format {chosen.name})")


def _with_system(example: Example, system: str, request: Request) -> Example:
    """The conversation with a system message first, unless it brings its own."""
    if not isinstance(example, Conversation):
        raise GalleyError(
            "data-format", "data.system: only conversations have a system message", hint="use `task: chat`"
        )
    if example.messages[0].role == "system":
        request.count("rows that keep their own system message: {count}")
        return example
    return Conversation((Message("system", system), *example.messages), example.meta)


def _drop_leaked(rows: _Rows, held: _Rows) -> tuple[list[Example], set[int]]:
    """Training rows that do not stand in the held-out rows, and the keys that stood in both."""
    leaked = set(held.keys) & set(rows.keys)
    return (rows.without(leaked) if leaked else rows.examples), leaked


def _refuse_empty(train: Sequence[Example], rows: _Rows, leaked: set[int]) -> None:
    if train:
        return
    where = ", ".join(rows.sources[:3])
    if leaked:
        raise GalleyError(
            "data-empty",
            f"{where}: every training row also stands in the held-out rows",
            hint="hold out other rows, or none with `evaluate: {held_out: 0}`",
        )
    if rows.empty:
        raise GalleyError(
            "data-empty",
            f"{where}: all {rows.empty} rows are without a question, an answer or a text ({rows.first_empty[0]}, ...)",
            hint="`columns:` says which columns to read",
        )
    raise GalleyError("data-empty", f"{where}: there are no rows in it")


def _statistics(
    train: Sequence[Example], held_out: Sequence[Example], rows: _Rows, held: _Rows, leaked: int
) -> DataStatistics:
    sizes = [size_of(example) for example in train]
    labels: set[str] = set()
    for side in (train, held_out):
        labels.update(example.label for example in side if isinstance(example, Labelled))
    if isinstance(train[0], Labelled) and len(labels) < 2:
        raise GalleyError(
            "data-columns",
            f"{rows.sources[0]}: all rows have the label {min(labels)!r}, and there is nothing to tell apart",
            hint="`columns: {label: ...}` says which column holds the classes",
        )
    distinct = len(set(rows.keys)) + len(set(held.keys))
    return DataStatistics(
        rows=len(train),
        held_out_rows=len(held_out),
        characters=sum(sizes),
        longest_characters=max(sizes),
        duplicates=len(rows.keys) + len(held.keys) - distinct,
        leaked=leaked,
        empty=rows.empty + held.empty,
        example_kind=KINDS[type(train[0])],
        labels=tuple(sorted(labels, key=_label_order)),
        wide_share=wide_share(train[:: max(1, len(train) // _SAMPLE_ROWS)]),
    )


def _label_order(label: str) -> tuple[int, int, str]:
    """Numbers as numbers, before words."""
    return (0, int(label), label) if label.isascii() and label.isdigit() else (1, 0, label)


def _reading_notes(rows: _Rows, held: _Rows) -> list[str]:
    """What the formats said, and which rows are dropped."""
    notes = [*rows.request.notes, *held.request.notes]
    counts = dict(rows.request.counts)
    for sentence, count in held.request.counts.items():
        counts[sentence] = counts.get(sentence, 0) + count
    notes += [sentence.format(count=f"{count:,}") for sentence, count in counts.items()]
    if rows.empty + held.empty:
        shown = "; ".join((rows.first_empty + held.first_empty)[:_SHOWN_ROWS])
        notes.append(f"rows dropped with nothing to learn: {rows.empty + held.empty:,} ({shown})")
    return list(dict.fromkeys(notes))


def _split_notes(
    rows: _Rows, train: Sequence[Example], held_out: Sequence[Example], leaked: int, share: float | str
) -> list[str]:
    """What a user should know about the held-out rows."""
    notes = []
    if leaked:
        dropped = len(rows.examples) - len(train)
        notes.append(
            f"held-out rows that also stood in training: {leaked:,}; training rows dropped for that: {dropped:,}"
        )
    if share and not held_out:
        few = f"with fewer than {FEWEST_ROWS} rows" if len(train) < FEWEST_ROWS else "since all rows are equal"
        notes.append(f"no rows are held out {few}, and the result cannot be judged on unseen rows")
    shared = _shared_prompts(train, held_out)
    if shared:
        notes.append(
            f"held-out rows that ask what training rows ask, with other answers: {shared:,} of {len(held_out):,}"
        )
    return notes


def _shared_prompts(train: Sequence[Example], held_out: Sequence[Example]) -> int:
    """Held-out rows whose whole prompt also occurs in training."""
    asked = {prompt for example in held_out if (prompt := prompt_of(example))}
    if not asked:
        return 0
    shared = {prompt for example in train if (prompt := prompt_of(example)) in asked}
    return sum(prompt_of(example) in shared for example in held_out)


def _fingerprint(train: Sequence[Example], held_out: Sequence[Example], section: DataSection, task: str) -> str:
    running = Fingerprint()
    running.add_settings(task, section.format, sorted(section.columns.items()), section.system)
    for side in (train, held_out):
        running.add_settings(len(side))
        for example in side:
            running.add(example)
    return running.hexdigest()
