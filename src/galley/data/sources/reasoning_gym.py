"""Tasks that `reasoning-gym` generates: endless rows, each with a scorer that knows the right answer.

Item i of a task with seed s is made from seed s + i, so two nearby seeds give mostly the same rows. Held-out rows
therefore come from a seed that no training set reaches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from galley.base import GalleyError
from galley.base.cache import cache_folder
from galley.data.examples import Conversation, Example
from galley.data.source import Record, Source, typed_option, with_sample
from galley.runs import atomic

DEFAULT_SIZE = 4000
UNSEEN_OFFSET = 10_000_019
"""Distance in seeds from training rows to held-out rows; also the largest number of rows."""


def open_sources(
    reference: str, *, options: dict[str, Any], split: str | None, rows: int | None, seed: int
) -> list[Source]:
    """One task. Options: `size` (rows), `seed`, and the task's own settings."""
    own = dict(options)
    size = typed_option(own, "size", int, DEFAULT_SIZE)
    seed = typed_option(own, "seed", int, seed)
    own.pop("size", None)
    own.pop("seed", None)
    if not 1 <= size <= UNSEEN_OFFSET:
        raise GalleyError("data-options", f"data.options.size: {size} is not between 1 and {UNSEEN_OFFSET}")
    task = Task(reference, own)
    return [_source(task, min(size, rows or size), seed, unseen=True)]


def _source(task: Task, size: int, seed: int, *, unseen: bool) -> Source:
    return with_sample(
        Source(
            f"reasoning-gym:{task.name} (seed {seed})",
            scheme="reasoning-gym",
            records=lambda: task.records(size, seed),
            columns=("question", "answer"),
            scorer=TaskScorer(task),
            unseen=(lambda count: _source(task, count, seed + UNSEEN_OFFSET, unseen=False)) if unseen else None,
        )
    )


class Task:
    """One task of the library, which is slow to import and is left alone while its rows are in the cache.

    Args:
        name: its name in the library.
        settings: its own settings.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.settings = settings
        self._opened: dict[tuple[int, int], Any] = {}

    def records(self, size: int, seed: int) -> Iterator[Record]:
        """Questions and answers, from the cache or newly generated."""
        path = cache_folder() / "reasoning-gym" / f"{self.name}-{self._key(size, seed)}.jsonl"
        if not path.exists():
            lines = "".join(self._lines(size, seed))
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, lines.encode())
        with path.open(encoding="utf-8") as file:
            for index, line in enumerate(file):
                question, answer = json.loads(line)
                yield Record(
                    index + 1, {"question": question, "answer": answer, "seed": seed, "size": size, "index": index}
                )

    def _lines(self, size: int, seed: int) -> Iterator[str]:
        dataset = self.open(size, seed)
        for index in range(size):
            entry = dataset[index]
            answer = entry["answer"]
            yield json.dumps([str(entry["question"]), "" if answer is None else str(answer)], ensure_ascii=False) + "\n"

    def _key(self, size: int, seed: int) -> str:
        facts = json.dumps([_version(), self.settings, size, seed], sort_keys=True, default=str)
        return hashlib.blake2b(facts.encode(), digest_size=10).hexdigest()

    def open(self, size: int, seed: int) -> Any:
        """The library's own dataset object."""
        if (size, seed) not in self._opened:
            self._opened[size, seed] = self._create(size, seed)
        return self._opened[size, seed]

    def _create(self, size: int, seed: int) -> Any:
        try:
            import reasoning_gym
            from reasoning_gym.factory import DATASETS
        except ImportError as error:
            raise _missing(self.name) from error
        if self.name not in DATASETS:
            import difflib

            near = difflib.get_close_matches(self.name, DATASETS, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(DATASETS))}"
            raise GalleyError("data-not-found", f"reasoning-gym:{self.name}: there is no such task", hint=hint)
        try:
            return reasoning_gym.create_dataset(self.name, size=size, seed=seed, **self.settings)
        except (TypeError, AssertionError, ValueError) as error:
            raise GalleyError(
                "data-options",
                f"reasoning-gym:{self.name}: the settings {self.settings} are not accepted ({error})",
                hint="options are size, seed and the task's own settings",
            ) from error


class TaskScorer:
    """The task's own judgement of an answer, from 0 to 1. An answer that makes it fail is worth 0 and counted.

    Args:
        task: the task whose rows are scored.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.failures = 0

    def __call__(self, answer: str, example: Example) -> float:
        """The score of an answer to an example of this task."""
        assert isinstance(example, Conversation), "generated tasks are read as conversations"
        dataset = self.task.open(example.meta["size"], example.meta["seed"])
        entry = dataset[example.meta["index"]]
        try:
            return min(1.0, max(0.0, float(dataset.score_answer(answer.strip(), entry))))
        except Exception:  # scorers parse free text, and several fail on text that they do not expect
            self.failures += 1
            return 0.0


def _version() -> str:
    try:
        return metadata.version("reasoning-gym")
    except metadata.PackageNotFoundError as error:
        raise _missing("") from error


def _missing(task: str) -> GalleyError:
    return GalleyError(
        "package-missing",
        f"reasoning-gym:{task}: generated tasks need the package reasoning-gym",
        hint="pip install 'galley-train[data]'",
    )
