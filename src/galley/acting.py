"""One job of an agent, from recipe to result: open the world, plan, act and learn, save, judge."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from galley import lifecycle, methods, recipe, runs
from galley.base import GalleyError
from galley.base.observer import Observer, SilentObserver
from galley.data.environments.check import check_environment
from galley.data.worlds import OpenWorld, open_world
from galley.manifest import check_world, control_manifest
from galley.plan import resolve
from galley.plan.control import ControlCase, ControlPlan, decide_control
from galley.recipe import Recipe

if TYPE_CHECKING:
    from galley.data.environments import Environments
    from galley.methods.control.base import Agent
    from galley.models.control.decision import Decision
    from galley.runs import EventLog, RunFolder

_EVALUATION_COPIES = 10
"""Environments that an evaluation plays in at once, at most."""


def plan_control(asked: Recipe) -> ControlPlan:
    """What would be done, and why, without torch. One environment is opened to see its spaces.

    Raises:
        GalleyError: for environments and methods that cannot be used, and `plan-does-not-fit`.
    """
    return _plan(asked, open_world(asked.data.path, asked.data.options))


def train_control(
    asked: Recipe, *, runs_root: Path, resume: str = "auto", observer: Observer | None = None
) -> RunFolder:
    """Train, save and judge an agent; see `job.train`.

    Raises:
        GalleyError: see docs/errors.md; `interrupted` after Ctrl-C, with everything saved.
    """
    log = runs.EventLog(observer or SilentObserver())
    unfinished = lifecycle.find_unfinished(asked, runs_root, resume)
    log.phase("open world")
    world = open_world(asked.data.path, asked.data.options)
    if unfinished is None:
        decided = _plan(asked, world)
        _check_device(decided.device)  # before there is a run of it
        proof = control_manifest(asked.data.path, asked.data.options, seed=asked.seed)
        folder = lifecycle.create(asked, decided.model_dump(mode="json"), proof, runs_root, resume)
    else:
        folder = unfinished
        decided = ControlPlan.model_validate(folder.plan())
        _check_device(decided.device)
    with folder.lock(), lifecycle.status(folder):
        log.attach(folder)
        check_world(folder, asked.data.path, asked.data.options)
        for warning in decided.warnings:
            log.note("plan", warning)
        if world.settings is not None:
            for message in check_environment(world.settings, seed=asked.seed).notes:
                log.note("environment", message)
        _train_and_judge(asked, decided, world, folder, log)
    return folder


def extend_control(folder: RunFolder, asked: Recipe, *, observer: Observer | None = None) -> RunFolder:
    """Train a finished run for longer, from its newest checkpoint.

    Args:
        folder: the run; finished.
        asked: its recipe, with the larger budget.
        observer: is told of progress.

    Raises:
        GalleyError: `plan-contradiction` when the budget does not grow.
    """
    log = runs.EventLog(observer or SilentObserver())
    world = open_world(asked.data.path, asked.data.options)
    before, decided = ControlPlan.model_validate(folder.plan()), _plan(asked, world)
    if decided.steps <= before.steps and (decided.minutes or 0) <= (before.minutes or 0):
        raise GalleyError(
            "plan-contradiction",
            f"the new budget has {decided.steps:,} steps, the run already had {before.steps:,}",
            hint="name a larger one, e.g. budget.steps=+100000",
        )
    with folder.lock(), lifecycle.status(folder):
        log.attach(folder)
        check_world(folder, asked.data.path, asked.data.options)
        folder.rewrite(recipe=recipe.dump(asked), plan=decided.model_dump(mode="json"))
        log.note("extended", f"from {before.steps:,} to {decided.steps:,} steps")
        _train_and_judge(asked, decided, world, folder, log)
    return folder


def _check_device(device: str) -> None:
    """A device that is not there is said before a run is made."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise GalleyError(
            "plan-contradiction", f"override.device: there is no {device} here: {error}", hint="override.device: cpu"
        ) from error


def _plan(asked: Recipe, world: OpenWorld) -> ControlPlan:
    case = ControlCase(
        asked,
        world.observations,
        world.actions,
        has_environment=world.settings is not None,
        has_episodes=world.episodes is not None,
        hardware=resolve(asked.hardware),
    )
    return decide_control(case)


def _train_and_judge(asked: Recipe, decided: ControlPlan, world: OpenWorld, folder: RunFolder, log: EventLog) -> None:
    from galley.evaluate.control import finish_control

    trained = _train(asked, decided, world, folder, log)
    gc.collect()
    finish_control(folder, asked, decided, world.settings, trained, observer=log)


def _train(asked: Recipe, decided: ControlPlan, world: OpenWorld, folder: RunFolder, log: EventLog) -> Decision:
    """Make the agent, run the loop, save the best policy; give the trained one, to compare with what was saved."""
    import torch

    from galley.learners.agent import AgentLearner
    from galley.loop import Training
    from galley.models.control.results import save_policy
    from galley.signals import interruptible

    torch.set_num_threads(decided.threads)
    log.phase("build agent")
    environments = world.copies(decided.num_envs) if decided.num_envs else None
    evaluation = None
    if world.settings is not None:
        evaluation = world.copies(min(decided.evaluate_episodes, _EVALUATION_COPIES), evaluation=True)
    journal = runs.Journal(folder, log, sinks=asked.checkpoint.sinks)
    try:
        agent = _agent(decided, world, environments, log)
        learner = AgentLearner(decided, agent, evaluation)
        with interruptible() as should_stop:
            work = Training(decided, learner, journal, keep=asked.checkpoint.keep, should_stop=should_stop)
            stopped = work.run()
        lifecycle.say_stopped(stopped, work)
        work.load_best()
        log.phase("save")
        save_policy(folder.result, agent.decision, method=decided.method)
        return agent.decision
    finally:
        journal.close()
        for opened in (environments, evaluation):
            if opened is not None:
                opened.close()


def _agent(decided: ControlPlan, world: OpenWorld, environments: Environments | None, log: EventLog) -> Agent:
    from galley.methods.control.base import World, WorldFacts
    from galley.models.control.spec import network_spec

    kind = methods.control.registry.get(decided.method)
    method = kind(kind.Config.model_validate(decided.method_options))
    network = network_spec(decided.model or None, kind.network)
    facts = WorldFacts(world.observations, world.actions, network, decided.steps)
    return method.agent(World(facts, environments, world.episodes, decided.seed, decided.device, log.note))
