"""One job from recipe to result: read, plan, place, train, save, judge. Read it from top to bottom."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import data, lifecycle, methods, models, recipe, runs
from galley.base import GalleyError
from galley.base.observer import Observer, SilentObserver
from galley.engines.group import ALONE, Group, join
from galley.manifest import check_manifest, manifest
from galley.plan import decide, resolve
from galley.plan.experience import measured, recall, remember
from galley.plan.types import Plan
from galley.recipe import Recipe

if TYPE_CHECKING:
    from galley.data.samples import Samples
    from galley.evaluate import TrainedOutputs
    from galley.methods.base import Method
    from galley.plan.control import ControlPlan
    from galley.runs import EventLog, RunFolder

RUNS = Path("runs")


def read_recipe(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """The validated recipe of a file or mapping, with `key=value` overrides.

    Raises:
        GalleyError: `recipe-invalid` with all mistakes, `recipe-not-found`, `recipe-syntax`.
    """
    return recipe.load(source, overrides, methods=methods)


def plan(asked: Recipe) -> Plan | ControlPlan:
    """What would be done, and why, without loading a model; tokens are estimated from characters.

    Raises:
        GalleyError: for data, model or hardware that cannot be used, and `plan-does-not-fit`.
    """
    if asked.task == "control":
        from galley.acting import plan_control

        return plan_control(asked)
    spec = models.resolve(asked.model)
    if asked.evaluate.scorer is None:
        facts = data.statistics(asked.data, task=asked.task, evaluate=asked.evaluate, seed=asked.seed)
    else:
        dataset = data.read(asked.data, task=asked.task, evaluate=asked.evaluate, seed=asked.seed)
        _check_scorer(asked, dataset)
        facts = dataset.statistics
    hardware = resolve(asked.hardware)
    if hardware.world > 1 and spec.kind == "decoder":
        from galley.plan.cluster import over_devices, without_limit

        return over_devices(decide(asked, spec, facts, without_limit(hardware)), asked, spec, hardware)
    return decide(asked, spec, facts, hardware, trainings=recall())


def train(
    asked: Recipe, *, runs_root: Path = RUNS, resume: str = "auto", observer: Observer | None = None
) -> RunFolder:
    """Train, save and judge what the recipe asks for.

    Args:
        asked: a validated recipe.
        runs_root: folder of all runs.
        resume: `auto` continues an unfinished run of the same recipe, `never` starts a new one; else the run to
            continue.
        observer: is told of progress.

    Raises:
        GalleyError: see docs/errors.md; `interrupted` after Ctrl-C, with everything saved.
    """
    if asked.task == "control":
        from galley.acting import train_control

        return train_control(asked, runs_root=runs_root, resume=resume, observer=observer)
    group = join()
    if not group.is_first:
        return _follow(asked, group)
    log = runs.EventLog(observer or SilentObserver())
    unfinished = lifecycle.find_unfinished(asked, runs_root, resume)
    inputs = _read(asked, log)
    if unfinished is None:
        decided, train_rows, held_out = inputs.plan()
        proof = manifest(inputs.spec, inputs.dataset, inputs.tokenizer, seed=asked.seed)
        folder = lifecycle.create(asked, decided.model_dump(mode="json"), proof, runs_root, resume)
    else:
        folder = unfinished
        decided = Plan.model_validate(folder.plan())
        train_rows, held_out = inputs.encode(decided.batch.max_length_tokens)
    with folder.lock(), lifecycle.status(folder):
        log.attach(folder)
        check_manifest(folder, inputs.dataset, inputs.tokenizer)
        group.share(str(folder.path))
        _train_and_judge(inputs, decided, train_rows, held_out, folder, group)
    return folder


def _follow(asked: Recipe, group: Group) -> RunFolder:
    """Train beside the first process, which has made the run, and leave everything else to it."""
    folder = runs.RunFolder.open(Path(group.share(None)))
    inputs = _read(asked, runs.EventLog(SilentObserver()))
    decided = Plan.model_validate(folder.plan())
    train_rows, held_out = inputs.encode(decided.batch.max_length_tokens)
    _train(inputs, decided, train_rows, held_out, folder, group)
    return folder


def extend(folder: RunFolder, overrides: Sequence[str], *, observer: Observer | None = None) -> RunFolder:
    """Train a run for longer: a larger budget, continued from its newest checkpoint; the schedule follows the new end.

    Args:
        folder: the run.
        overrides: of the budget only, e.g. `budget.epochs=5`, or `budget.epochs=+1` on top of what it had.
        observer: is told of progress.

    Raises:
        GalleyError: `run-unfinished`; `plan-contradiction` when something else is changed or the budget does not grow.
    """
    if folder.status() != "done":
        raise GalleyError(
            "run-unfinished",
            f"the run {folder.name} is not finished, so there is nothing to extend",
            hint=f"galley resume {folder.name}",
        )
    had = read_recipe(folder.path / "recipe.yaml")
    decisions = folder.plan()
    asked = recipe.extend(
        had,
        overrides,
        methods=methods,
        decided={"budget.epochs": decisions.get("epochs", 0), "budget.steps": decisions["steps"]},
    )
    if asked.task == "control":
        from galley.acting import extend_control

        return extend_control(folder, asked, observer=observer)
    before = Plan.model_validate(decisions)
    log = runs.EventLog(observer or SilentObserver())
    inputs = _read(asked, log)
    decided, train_rows, held_out = inputs.plan(max_length=before.batch.max_length_tokens)
    if decided.steps <= before.steps:
        raise GalleyError(
            "plan-contradiction",
            f"the new budget has {decided.steps} steps, the run already had {before.steps}",
            hint="name a larger one, e.g. budget.epochs=+1",
        )
    with folder.lock(), lifecycle.status(folder):
        log.attach(folder)
        check_manifest(folder, inputs.dataset, inputs.tokenizer)
        folder.rewrite(recipe=recipe.dump(asked), plan=decided.model_dump(mode="json"))
        log.note("extended", f"from {before.steps} to {decided.steps} steps")
        _train_and_judge(inputs, decided, train_rows, held_out, folder, ALONE)
    return folder


@dataclass(frozen=True)
class _Inputs:
    """What the recipe names, opened."""

    asked: Recipe
    spec: models.ModelSpec
    dataset: data.Dataset
    method: Method
    tokenizer: Any
    log: EventLog

    def plan(self, max_length: int | None = None) -> tuple[Plan, Samples, Samples | None]:
        """The plan, with the rows encoded as it says. Lengths are counted first, whole, so that none is guessed."""
        hardware, statistics = resolve(self.asked.hardware), self.dataset.statistics
        if max_length is None:
            whole, _ = self.encode(self.spec.max_positions or 1 << 20, quiet=True)
            max_length = decide(
                self.asked, self.spec, statistics, hardware, counted=whole.report
            ).batch.max_length_tokens
        train_rows, held_out = self.encode(max_length)
        decided = decide(
            self.asked,
            self.spec,
            statistics,
            hardware,
            counted=train_rows.report,
            encoded_rows=len(train_rows),
            max_length=max_length,
            trainings=recall(),
        )
        return decided, train_rows, held_out

    def encode(self, max_length: int, *, quiet: bool = False) -> tuple[Samples, Samples | None]:
        """Training and held-out rows as the method sees them, through the cache."""
        note = SilentObserver().note if quiet else self.log.note
        encoding = methods.Encoding(self.tokenizer, max_length, self.dataset.statistics.labels, note)
        train_rows = self.method.encode(self.dataset.train, encoding)
        held_out = self.method.encode(self.dataset.held_out, encoding) if self.dataset.held_out else None
        return train_rows, held_out


def _read(asked: Recipe, log: EventLog) -> _Inputs:
    from galley.data.encode import all_texts

    spec = models.resolve(asked.model)
    log.phase("read data")
    dataset = data.read(asked.data, task=asked.task, evaluate=asked.evaluate, seed=asked.seed)
    for message in dataset.notes:
        log.note("data", message)
    # what cannot work is said before anything loads
    decide(asked, spec, dataset.statistics, resolve(asked.hardware))
    _check_scorer(asked, dataset)
    kind = methods.registry.get(asked.method.name or methods.default_for(asked.task))
    method = kind(kind.Config.model_validate(asked.method.options))
    log.phase("tokenise")
    tokenizer = models.tokenizer_for(spec, lambda: all_texts(dataset.train), on_note=log.note)
    return _Inputs(asked, spec, dataset, method, tokenizer, log)


def _check_scorer(asked: Recipe, dataset: data.Dataset) -> None:
    """A scorer that cannot judge these rows is refused before anything is trained."""
    from galley.evaluate import choose_scorer

    if asked.evaluate.verdict and dataset.held_out:
        choose_scorer(asked.evaluate.scorer, dataset)


def _train_and_judge(
    inputs: _Inputs, decided: Plan, train_rows: Samples, held_out: Samples | None, folder: RunFolder, group: Group
) -> None:
    """Train and save; then, with the trained model out of memory, prove the result and compare it with the base."""
    from galley import evaluate

    trained = _train(inputs, decided, train_rows, held_out, folder, group)
    gc.collect()
    runs.loss_plot(folder)
    if learned := measured(decided, inputs.spec.family, inputs.spec.num_parameters, folder.metrics()):
        remember(learned)
    evaluate.finish(folder, inputs.asked, observer=inputs.log, trained=trained)


def _train(
    inputs: _Inputs, decided: Plan, train_rows: Samples, held_out: Samples | None, folder: RunFolder, group: Group
) -> TrainedOutputs | None:
    """Place the model, run the loop, save the best weights; give what the trained model answers, while it is here."""
    from galley import engines, evaluate
    from galley.learners.rows import RowLearner
    from galley.loop import Training
    from galley.signals import interruptible

    asked, log = inputs.asked, inputs.log
    log.phase("load model")
    model = inputs.method.build(inputs.spec, settings(decided, inputs, train_rows), log.note)
    engine = engines.registry.get("mesh" if group.size > 1 else decided.engine)()
    engine.setup(decided.model_copy(update={"threads": max(1, decided.threads // group.size)}), model)
    journal = runs.Journal(folder, log, sinks=asked.checkpoint.sinks, writes=group.is_first)
    with interruptible() as should_stop:
        learner = RowLearner(decided, inputs.method, model, engine, train_rows, held_out, group=group)
        work = Training(decided, learner, journal, keep=asked.checkpoint.keep, should_stop=should_stop, group=group)
        try:
            stopped = work.run()
            lifecycle.say_stopped(stopped, work)
            work.load_best()
            model.release()
            if not group.is_first:
                return None
            _save(model, decided, inputs, folder)
            return evaluate.record(model.module, inputs.tokenizer, inputs.dataset.held_out, device=decided.device)
        finally:
            journal.close()
            engine.close()


def settings(decided: Plan, inputs: _Inputs, rows: Samples) -> models.ModelSettings:
    """The plan's decisions that concern the model, as plain values."""
    adapter = decided.adapter
    return models.ModelSettings(
        precision=decided.precision,
        device=decided.device,
        tuning=decided.tuning,
        rank=adapter.rank if adapter else 0,
        alpha=adapter.alpha if adapter else 0.0,
        dropout=adapter.dropout if adapter else 0.0,
        targets=adapter.targets if adapter else "all-linear",
        packing=decided.batch.packing,
        shared_prefix=decided.batch.shared_prefix,
        fast_path=decided.fast_path,
        compile=decided.compile,
        checkpointing=decided.checkpointing,
        seed=decided.seed,
        tokenizer=inputs.tokenizer,
        labels=inputs.dataset.statistics.labels,
        input_shape=rows.report.row_shape,
    )


def _save(model: models.Model, decided: Plan, inputs: _Inputs, folder: RunFolder) -> None:
    from galley.data.template import Template

    inputs.log.phase("save")
    models.save(
        model.module,
        inputs.tokenizer,
        folder.result,
        spec=model.spec,
        stop_ids=Template(inputs.tokenizer).stop_ids if decided.task == "chat" else (),
        labels=inputs.dataset.statistics.labels,
    )
