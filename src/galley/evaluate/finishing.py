"""The last part of a job: prove that the result is what was trained, judge it, and describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from galley.base import GalleyError, Observer, SilentObserver
from galley.evaluate.card import write_card
from galley.evaluate.finished_run import FinishedRun
from galley.evaluate.judging import judge_run
from galley.evaluate.parity import Parity, TrainedOutputs, compare_with, merged
from galley.evaluate.verdict import Verdict

if TYPE_CHECKING:
    from galley.recipe.schema import Recipe
    from galley.runs import RunFolder

LEAST_AGREEMENT = 0.9
"""Below this share of equal likeliest tokens a note says so: rounding in 16 bits decides near ties, not one in ten."""


def finish(
    folder: RunFolder, asked: Recipe, *, observer: Observer | None = None, trained: TrainedOutputs | None = None
) -> Verdict | None:
    """Write result/parity.json, verdict.json, answers.jsonl and README.md of a run whose result is saved.

    Args:
        folder: of the run.
        asked: its recipe.
        observer: is told of progress.
        trained: what the trained model said in memory, from `record`; the first part of the proof is left out without.

    Returns:
        The verdict, or None when the recipe asks for none or nothing is held out.

    Raises:
        GalleyError: `below-quality` when the verdict is below what the recipe demands; everything is written before.
    """
    observer = observer or SilentObserver()
    run = FinishedRun.open(folder, observer)
    parity: dict[str, Parity] = {}
    if trained is not None:
        parity["reloaded"] = compare_with(trained, run.contestants.tuned.module, device=run.plan.device)
    verdict = judge_run(run, asked.evaluate.rows) if asked.evaluate.verdict and run.dataset.held_out else None
    if trained is not None and run.contestants.is_adapter:
        # Last, since merging changes the weights in memory for good.
        parity["merged"] = merged(trained, run.contestants.tuned.module, device=run.plan.device)
    for form, pair in parity.items():
        if pair.agreement < LEAST_AGREEMENT:
            observer.note(
                "parity", f"the {form} model agrees with the trained one on only {pair.agreement:.0%} of tokens"
            )
    if parity:
        folder.write_result("parity.json", {form: pair.to_json() for form, pair in parity.items()})
    write_card(run, verdict)
    if verdict is not None:
        _demand(asked, verdict)
    return verdict


def _demand(asked: Recipe, verdict: Verdict) -> None:
    wanted = asked.evaluate.demand
    if (wanted == "better" and not verdict.better) or (wanted == "not-worse" and verdict.worse):
        raise GalleyError(
            "below-quality",
            f"the recipe demands a result that is {wanted.replace('-', ' ')}. {verdict.sentence}",
            hint="train longer or on more data, or look at the worst answers in result/answers.jsonl",
        )
