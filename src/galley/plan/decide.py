"""The planner: recipe, model, data and hardware in; every decision with its reason out. Pure, and without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from galley.data.dataset import DataStatistics
from galley.data.samples import EncodeReport
from galley.models.spec import ModelSpec
from galley.plan.case import Case, device_kind
from galley.plan.checks import check, choose_device, choose_method
from galley.plan.experience import Training, correction, machine_of
from galley.plan.fit import Fit, fit
from galley.plan.ledger import Ledger
from galley.plan.memory import trained_parameters
from galley.plan.phases import phases_of
from galley.plan.price import cost_of
from galley.plan.rules import (
    COMPILE_PAYS_SECONDS,
    choose_adapter,
    choose_global_batch,
    choose_optimizer,
    choose_precision,
    default_epochs,
)
from galley.plan.time import tokens_per_second
from galley.plan.types import BatchPlan, Correction, Hardware, Plan, Predicted
from galley.recipe.schema import Precision, Recipe

_READING_ORDER = (
    *("method", "tuning", "rank", "device", "precision", "fast_path", "compile", "checkpointing", "max_length"),
    *("global_batch", "micro_batch_tokens", "epochs", "optimizer", "learning_rate", "schedule"),
)
_EVALUATIONS = 10
_EVALUATE_ROWS = {"cpu": 64, "cuda": 512, "mps": 128}
_MOST_EPOCHS_BY_TIME = 10.0


def decide(
    recipe: Recipe,
    spec: ModelSpec,
    statistics: DataStatistics,
    hardware: Hardware,
    *,
    counted: EncodeReport | None = None,
    encoded_rows: int | None = None,
    max_length: int | None = None,
    trainings: Sequence[Training] = (),
) -> Plan:
    """Decide how to train.

    Args:
        recipe: what is asked for; its pins are kept.
        spec: shape of the model.
        statistics: facts about the data.
        hardware: where it runs.
        counted: rows and tokens as encoded; without it they are estimated from characters.
        encoded_rows: samples that encoding gave, `len(samples)`; pieces of a long document count each.
        max_length: the limit, in tokens, that the rows were encoded with.
        trainings: earlier ones, from which predictions are corrected.

    Raises:
        GalleyError: `plan-contradiction` when settings exclude each other, `plan-does-not-fit` with the cheapest
            change that would help, `model-unsupported` when the method cannot use this kind of model.
    """
    ledger = Ledger()
    method = choose_method(recipe, spec, statistics, ledger)
    case = Case(recipe, spec, statistics, hardware, method, counted, encoded_rows, max_length)
    check(case)
    device = choose_device(case, ledger)
    precision = choose_precision(case, device, ledger)
    # How rows are batched needs the number of pieces, which needs the length: documents are first counted whole.
    global_batch = choose_global_batch(case, case.rows(max_length or recipe.override.max_length or 512), ledger)
    fitted = fit(case, device, precision, global_batch, ledger)
    adapter = choose_adapter(case, fitted.tuning, ledger)
    rows = case.rows(fitted.max_length)
    fast_path = _fast_path(case, fitted, ledger)
    corrected = _correction(case, fitted, device, precision, fast_path, trainings)
    speed = _speed(case, fitted, device, corrected)
    epochs, steps = _length_of_training(case, rows, global_batch, speed, ledger)
    seconds = _seconds(case, rows, steps, global_batch, speed)
    optimizer = choose_optimizer(case, fitted.tuning, steps, ledger)
    pins = recipe.override
    _warn(case, rows, fitted.max_length, ledger)
    return Plan(
        task=recipe.task,
        method=method,
        method_options=recipe.method.options,
        model=recipe.model,
        engine=pins.engine or "single",
        hardware=hardware,
        device=device,
        threads=pins.threads or hardware.cores,
        tuning=fitted.tuning,
        adapter=adapter,
        precision=precision,
        fast_path=fast_path,
        compile=_compile(case, fast_path, seconds[1], ledger),
        checkpointing=fitted.checkpointing,
        batch=_batch(case, fitted, global_batch, ledger),
        optimizer=optimizer,
        rows=rows,
        epochs=epochs,
        steps=steps,
        minutes=recipe.budget.minutes,
        price_per_hour=recipe.budget.price_per_hour,
        until=recipe.budget.until,
        evaluate_every=recipe.evaluate.every or max(1, math.ceil(steps / _EVALUATIONS)),
        evaluate_rows=_EVALUATE_ROWS.get(device_kind(device), _EVALUATE_ROWS["cuda"]),
        checkpoint_every=recipe.checkpoint.every or 0,
        seed=recipe.seed,
        exact=counted is not None,
        tokens=case.tokens,
        decisions=ledger.in_order(_READING_ORDER),
        predicted=_predicted(case, fitted, speed, seconds, corrected),
        alternatives=fitted.alternatives,
        warnings=tuple(ledger.warnings),
    )


def _fast_path(case: Case, fitted: Fit, ledger: Ledger) -> bool:
    if case.spec.kind != "decoder":
        return False
    able = fitted.path == "fast"
    if able:
        because = f"{case.spec.family} is Llama-shaped; the loaded model is checked against the general step"
    elif fitted.checkpointing == "full":
        because = "recomputing whole layers is the general step's"
    else:
        because = f"the general step serves {case.spec.family} with {fitted.tuning} tuning"
    return ledger.choose("fast_path", case.recipe.override.fast_path, able, because=because)


def _batch(case: Case, fitted: Fit, global_batch: int, ledger: Ledger) -> BatchPlan:
    pins = case.recipe.override
    micro_rows = min(pins.micro_batch or global_batch, global_batch)
    micro_tokens = fitted.micro_batch_tokens if case.has_tokens else max(16, micro_rows)
    if case.has_tokens:
        ledger.choose(
            "micro_batch_tokens",
            pins.micro_batch_tokens,
            micro_tokens,
            because="fits the memory and keeps matrix products busy; never changes the result",
        )
    decoder = case.spec.kind == "decoder"
    return BatchPlan(
        global_batch_rows=global_batch,
        micro_batch_rows=micro_rows,
        micro_batch_tokens=micro_tokens,
        max_length_tokens=fitted.max_length,
        packing=decoder and pins.packing is not False,
        shared_prefix=decoder and pins.shared_prefix is not False,
    )


def _correction(
    case: Case, fitted: Fit, device: str, precision: Precision, fast_path: bool, trainings: Sequence[Training]
) -> Correction:
    like = Training(
        machine=machine_of(case.hardware.name, case.hardware.cores),
        device=device,
        tuning=fitted.tuning,
        precision=precision,
        fast_path=fast_path,
        checkpointing=fitted.checkpointing,
        family=case.spec.family,
        parameters=case.spec.num_parameters,
        tokens_per_second=1.0,
        memory_bytes=1.0,
        measured_on=measured.on if (measured := case.hardware.measured) else "",
    )
    return correction(trainings, like)


def _speed(case: Case, fitted: Fit, device: str, correction: Correction) -> tuple[float, float, float]:
    mean = case.mean(fitted.max_length)
    likely = tokens_per_second(case.spec, fitted.work, case.hardware, device, fitted.path, mean)
    low, middle, high = (likely * factor for factor in correction.speed)
    return (low, middle, high)


def _length_of_training(
    case: Case, rows: int, global_batch: int, speed: tuple[float, float, float], ledger: Ledger
) -> tuple[float, int]:
    """Epochs and optimiser steps. Each epoch ends with a smaller step where the rows do not divide."""
    from galley.data.order import steps_per_epoch, total_steps

    budget = case.recipe.budget
    per_epoch = steps_per_epoch(rows, global_batch)
    default, why = default_epochs(case, rows, global_batch)
    pin: float | None = None
    if budget.epochs is not None:
        pin = budget.epochs
    elif budget.steps is not None:
        pin = budget.steps / per_epoch
    elif budget.tokens is not None:
        pin = budget.tokens / max(1, case.tokens)
    elif budget.minutes is not None and speed[2] > 0:
        # By the highest speed: the clock ends the training, and the schedule with it, not a lack of steps.
        default = min(_MOST_EPOCHS_BY_TIME, budget.minutes * 60 * speed[2] / max(1, case.tokens))
        why = f"at most what {budget.minutes:g} minutes allow at the highest speed expected; the clock ends it"
    steps = budget.steps or total_steps(rows, global_batch, default if pin is None else pin)
    epochs = round(steps / per_epoch, 4)
    ledger.choose("epochs", None if pin is None else epochs, epochs, because=why)
    return epochs, steps


def _seconds(
    case: Case, rows: int, steps: int, global_batch: int, speed: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Low, likely and high duration of the training proper, bounded by the time limit."""
    if speed[1] <= 0:
        return (0.0, 0.0, 0.0)
    tokens = case.tokens * steps * global_batch / max(1, rows)
    limit = case.recipe.budget.minutes
    most = math.inf if limit is None else limit * 60
    low, likely, high = (min(most, tokens / rate) for rate in reversed(speed))
    return (low, likely, high)


def _compile(case: Case, fast_path: bool, seconds: float, ledger: Ledger) -> Literal["none", "block"]:
    if case.spec.kind != "decoder":
        return "none"
    pays = not fast_path and seconds > COMPILE_PAYS_SECONDS
    if fast_path:
        because = "the hand-written step needs none"
    elif pays:
        because = "about 20 s once, and a fifth faster after"
    else:
        because = "the training is too short for compiling to pay"
    unless = (
        "" if fast_path else "the training were shorter" if pays else "the training were longer than about 4 minutes"
    )
    chosen: Literal["none", "block"] = "block" if pays else "none"
    return ledger.choose("compile", case.recipe.override.compile, chosen, because=because, unless=unless)


def _predicted(
    case: Case,
    fitted: Fit,
    speed: tuple[float, float, float],
    seconds: tuple[float, float, float],
    correction: Correction,
) -> Predicted:
    total = sum(fitted.parts.values())
    low, likely, high = (int(total * factor) for factor in correction.memory)
    trained = trained_parameters(case.spec, fitted.work)
    saved = case.recipe.checkpoint.keep + 1
    result = trained * 4 if fitted.tuning != "full" else case.spec.num_parameters * 2
    return Predicted(
        memory_parts=fitted.parts,
        memory_bytes=(low, likely, high),
        memory_phases=phases_of(fitted.parts, correction.memory[1]),
        tokens_per_second=speed,
        seconds=seconds,
        cost=cost_of(seconds, case.recipe.budget.price_per_hour),
        disk_bytes=trained * 12 * saved + result,
        correction=correction,
    )


def _warn(case: Case, rows: int, max_length: int, ledger: Ledger) -> None:
    counted = case.counted
    if counted is not None and counted.rows_truncated:
        share = counted.rows_truncated / max(1, counted.rows_in)
        ledger.warn(
            f"{counted.rows_truncated:,} of {counted.rows_in:,} rows ({share:.1%}) are cut at {max_length:,} tokens, "
            f"and {counted.tokens_cut:,} tokens are lost; lengths: median {counted.lengths[0]:,}, "
            f"95th percentile {counted.lengths[1]:,}, longest {counted.lengths[2]:,}"
        )
    if counted is not None and counted.rows_without_targets:
        ledger.warn(f"{counted.rows_without_targets:,} rows are dropped: nothing in them is learned after cutting")
    if counted is None and not case.is_documents and case.longest > max_length:
        ledger.warn(f"the longest row has about {case.longest:,} tokens; rows are cut at {max_length:,}")
    if rows < 50 and case.recipe.task != "complete":
        ledger.warn(f"{rows} rows are very few; the verdict will be uncertain")
    if case.hardware.num_devices * case.hardware.num_nodes > 1:
        ledger.warn(f"the engine `single` uses one of {case.hardware.num_devices * case.hardware.num_nodes} devices")
