"""Both models on the same held-out rows, measured in the way that the scorer needs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from galley.base import GalleyError
from galley.data.examples import Labelled
from galley.data.template import Template
from galley.evaluate import measuring
from galley.evaluate.comparing import Scored, best_and_worst
from galley.evaluate.contestants import Contestant
from galley.evaluate.finished_run import FinishedRun
from galley.evaluate.measuring import Done
from galley.evaluate.questions import Question
from galley.evaluate.scorers import Observed, Scorer

_ROOM_SHARE = 4  # of the context: what a prompt must leave for an answer, unless answers are shorter anyway

T = TypeVar("T")


@dataclass
class Trial:
    """Measures both models in the way that the scorer needs.

    Args:
        run: what is judged.
        scorer: scores single rows.
        notes: what a reader of the verdict should know; grows.
    """

    run: FinishedRun
    scorer: Scorer
    notes: list[str] = field(default_factory=list)
    baseline: str = "the base model"

    def of(self, asked: Sequence[Question]) -> list[Scored]:
        """The rows, judged; rows that cannot be asked are left out, and this is noted."""
        ways = {"answers": self._by_answers, "losses": self._by_losses, "classes": self._by_classes}
        return ways[self.scorer.needs](asked)

    def _by_answers(self, asked: Sequence[Question]) -> list[Scored]:
        """Greedy answers of both."""
        rows = self._askable(asked)
        texts = self._both("judge answers", lambda model, done: self._answers(model, rows, done), len(rows))
        return [self._scored(row, *pair) for row, pair in zip(rows, texts, strict=True)]

    def _by_losses(self, asked: Sequence[Question]) -> list[Scored]:
        """Losses of both, and answers only to the rows that will be shown."""
        samples = self.run.encode(list(asked))
        kept = samples.examples.tolist()
        if len(set(kept)) < len(asked):
            self.notes.append(f"{len(asked) - len(set(kept))} held-out rows have nothing to learn within the limit")
        pairs = self._both("judge losses", lambda model, done: self._losses(model, samples, done), len(samples))
        rows = []
        for number in sorted(set(kept)):
            parts = [pair for pair, example in zip(pairs, kept, strict=True) if example == number]
            tokens = sum(count for (_, count), _ in parts)
            base, tuned = (sum(part[side][0] for part in parts) / tokens for side in (0, 1))
            rows.append(
                Scored(
                    asked[number],
                    "",
                    "",
                    self._score(asked[number], Observed(loss=base)),
                    self._score(asked[number], Observed(loss=tuned)),
                    weight=tokens,
                )
            )
        return self._with_answers(rows)

    def _by_classes(self, asked: Sequence[Question]) -> list[Scored]:
        """Classes that the tuned model predicts, against the most frequent class of the training rows."""
        samples = self.run.encode(list(asked))
        labels = Counter(row.label for row in self.run.dataset.train if isinstance(row, Labelled))
        (usual, _), *_ = labels.most_common(1)
        self.baseline = f"always answering {usual!r}, the most frequent class"
        self.notes.append("a base model has no head for these classes; the comparison is with the most frequent one")
        tuned = self.run.contestants.tuned
        self.run.observer.phase("judge classes", total=len(samples))
        found = measuring.classes(tuned, samples, device=self.run.plan.device, done=self.run.observer.advance)
        return [self._scored(row, usual, text) for row, text in zip(asked, found, strict=True)]

    def _both(self, phase: str, measure: Callable[[Contestant, Done], list[T]], count: int) -> list[tuple[T, T]]:
        self.run.contestants  # noqa: B018  loading is a phase of its own
        self.run.observer.phase(phase, total=2 * count)
        with self.run.contestants.base() as base:
            before = measure(base, self.run.observer.advance)
        return list(zip(before, measure(self.run.contestants.tuned, self.run.observer.advance), strict=True))

    def _askable(self, asked: Sequence[Question]) -> list[Question]:
        """The rows whose prompt leaves room for an answer in the model's context; the others are noted.

        Raises:
            GalleyError: `data-empty` when there are none.
        """
        room = self._room
        rows = [row for row in asked if len(row.ids) <= room]
        if len(rows) < len(asked):
            self.notes.append(
                f"{len(asked) - len(rows)} held-out prompts are longer than {room} tokens and were not asked"
            )
        if not rows:
            raise GalleyError(
                "data-empty", f"every held-out prompt is longer than {room} tokens, and none can be answered"
            )
        return rows

    @property
    def _room(self) -> int:
        """Tokens that a prompt may have."""
        context = self.run.contestants.tuned.context
        if context is None:
            return sys.maxsize
        return context - min(self.run.asked.evaluate.max_new_tokens, context // _ROOM_SHARE)

    def _answers(self, model: Contestant, rows: Sequence[Question], done: Done) -> list[str]:
        conversations = self.run.asked.task == "chat"
        return measuring.answers(
            model,
            rows,
            max_new_tokens=self.run.asked.evaluate.max_new_tokens,
            stop_ids=Template(model.tokenizer).stop_ids if conversations else (),
            device=self.run.plan.device,
            note=self._note,
            done=done,
        )

    def _losses(self, model: Contestant, samples: Any, done: Done) -> list[tuple[float, int]]:
        return measuring.losses(model, samples, device=self.run.plan.device, note=self._note, done=done)

    def _with_answers(self, rows: list[Scored]) -> list[Scored]:
        """The rows, the best and worst of them with what both models answer, if they ask anything."""
        best, worst = best_and_worst(rows, self.scorer)
        shown = [row.question for row in (*best, *worst) if 0 < len(row.question.ids) <= self._room]
        if not shown:
            return rows
        texts = self._both("answer examples", lambda model, done: self._answers(model, shown, done), len(shown))
        answers = {question.row: pair for question, pair in zip(shown, texts, strict=True)}
        given = ((row, answers.get(row.question.row, ("", ""))) for row in rows)
        return [replace(row, base=base, tuned=tuned) for row, (base, tuned) in given]

    def _scored(self, question: Question, base: str, tuned: str) -> Scored:
        before, after = (self._score(question, Observed(text)) for text in (base, tuned))
        return Scored(question, base, tuned, before, after)

    def _score(self, question: Question, observed: Observed) -> float:
        return self.scorer.score(observed, question.example, self.run.dataset.scorer)

    def _note(self, kind: str, message: str) -> None:
        """Fall-backs are for the user and the verdict; how a path was chosen is not."""
        if kind == "fallback" and message not in self.notes:
            self.notes.append(message)
            self.run.observer.note(kind, message)
