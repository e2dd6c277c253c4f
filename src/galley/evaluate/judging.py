"""Judge a finished run: base and tuned model on the same held-out rows."""

from __future__ import annotations

import json
import time

from galley.base import GalleyError, Observer, SilentObserver
from galley.evaluate.card import write_card
from galley.evaluate.choice import choose_scorer
from galley.evaluate.comparing import compare
from galley.evaluate.finished_run import FinishedRun
from galley.evaluate.trial import Trial
from galley.evaluate.verdict import Verdict
from galley.runs import RunFolder, write_bytes


def judge(folder: RunFolder, *, observer: Observer | None = None, rows: int | None = None) -> Verdict:
    """Let base and tuned model answer the same held-out rows, and store verdict, answers and model card.

    Args:
        folder: a finished run.
        observer: is told of progress.
        rows: held-out rows to use, for a look: nothing is stored then. As in the recipe when left out.

    Raises:
        GalleyError: `run-unfinished` without a result, `data-empty` without held-out rows.
    """
    run = FinishedRun.open(folder, observer or SilentObserver())
    if rows is not None:
        return judge_run(run, rows, store=False)
    verdict = judge_run(run, run.asked.evaluate.rows)
    write_card(run, verdict)
    folder.event("judged", f"again, on {verdict.n} held-out rows")
    return verdict


def judge_run(run: FinishedRun, rows: int, *, store: bool = True) -> Verdict:
    """`judge` for a run that is open; the card is left to the caller."""
    started = time.perf_counter()
    name, scorer = choose_scorer(run.asked.evaluate.scorer, run.dataset)
    if not run.dataset.held_out:
        raise GalleyError(
            "data-empty",
            f"the run {run.folder.name} has no held-out rows to judge it on",
            hint="evaluate.held_out: 0.1, or a path with rows that are not trained on",
        )
    asked = run.held_out(rows)
    trial = Trial(run, scorer)
    scored = trial.of(asked)
    verdict = compare(
        scored,
        name,
        scorer,
        baseline=trial.baseline,
        notes=trial.notes,
        seconds=round(time.perf_counter() - started, 2),
    )
    if not store:
        return verdict
    lines = (json.dumps(row.as_answer().model_dump(), ensure_ascii=False) for row in scored)
    write_bytes(run.folder.result / "answers.jsonl", "".join(f"{line}\n" for line in lines).encode())
    run.folder.write_result("verdict.json", verdict.model_dump(mode="json"))
    return verdict
