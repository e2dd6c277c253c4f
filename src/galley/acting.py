"""One job of an agent, from recipe to result: open the world, plan, act and learn, save, judge."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley import lifecycle, methods, recipe, runs
from galley.base import GalleyError
from galley.base.observer import Observer, SilentObserver
from galley.data.environments import EnvironmentSettings, open_environments
from galley.data.environments.options import environment_settings
from galley.manifest import check_world, control_manifest
from galley.plan import resolve
from galley.plan.control import ControlCase, ControlPlan, decide_control
from galley.recipe import Recipe

if TYPE_CHECKING:
    from galley.data.environments import Environments
    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.data.episodes import StoredEpisodes
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
    return _open_world(asked).plan(asked)


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
    world = _open_world(asked)
    if unfinished is None:
        decided = world.plan(asked)
        proof = control_manifest(asked.data.path, asked.data.options, seed=asked.seed)
        folder = lifecycle.create(asked, decided.model_dump(mode="json"), proof, runs_root, resume)
    else:
        folder = unfinished
        decided = ControlPlan.model_validate(folder.plan())
    with folder.lock(), lifecycle.status(folder):
        log.attach(folder)
        check_world(folder, asked.data.path, asked.data.options)
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
    world = _open_world(asked)
    before, decided = ControlPlan.model_validate(folder.plan()), world.plan(asked)
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


@dataclass(frozen=True)
class _OpenWorld:
    """What the recipe's `data:` names.

    Args:
        observations, actions: layouts.
        settings: of the environment, with one copy; None when there are stored episodes without one.
        episodes: stored ones.
    """

    observations: ObservationLayout
    actions: ActionLayout
    settings: EnvironmentSettings | None
    episodes: StoredEpisodes | None

    def plan(self, asked: Recipe) -> ControlPlan:
        case = ControlCase(
            asked,
            self.observations,
            self.actions,
            has_environment=self.settings is not None,
            has_episodes=self.episodes is not None,
            hardware=resolve(asked.hardware),
        )
        return decide_control(case)

    def copies(self, number: int, *, evaluation: bool = False) -> Environments:
        """That many environments; those of an evaluation stay in this process."""
        assert self.settings is not None
        settings = replace(self.settings, num_envs=number)
        if evaluation and settings.vector == "processes":
            settings = replace(settings, vector="auto")
        return open_environments(settings)


def _open_world(asked: Recipe) -> _OpenWorld:
    reference, options = asked.data.path, asked.data.options
    if is_environment(reference):
        settings = environment_settings(reference, options, num_envs=1)
        observations, actions = _layouts(settings)
        return _OpenWorld(observations, actions, settings, None)
    from galley.data.episodes import read_episodes

    own = dict(options)
    played_in = own.pop("environment", None)
    episodes = read_episodes(Path(reference), _reading_options(own))
    world: EnvironmentSettings | None = None
    if played_in is not None:
        world = environment_settings(str(played_in), _world_options(own), num_envs=1)
    if world is not None and _layouts(world) != (episodes.observations_layout, episodes.actions_layout):
        raise GalleyError(
            "environment-invalid",
            f"data.options.environment: {played_in} has other spaces than the episodes in {reference}",
            hint="name the environment that they were played in",
        )
    return _OpenWorld(episodes.observations_layout, episodes.actions_layout, world, episodes)


def is_environment(reference: str) -> bool:
    """Whether the words name an environment, rather than a file of stored episodes."""
    if Path(reference).exists():
        return False
    return ":" in reference


_WORLD_OPTIONS = ("kwargs", "wrappers", "observe", "vector", "workers")


def _world_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in _WORLD_OPTIONS}


def _reading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _WORLD_OPTIONS}


def _layouts(settings: EnvironmentSettings) -> tuple[ObservationLayout, ActionLayout]:
    one = open_environments(replace(settings, vector="auto"))
    try:
        return one.observations, one.actions
    finally:
        one.close()


def _train_and_judge(asked: Recipe, decided: ControlPlan, world: _OpenWorld, folder: RunFolder, log: EventLog) -> None:
    from galley.evaluate.control import finish_control

    trained = _train(asked, decided, world, folder, log)
    gc.collect()
    finish_control(folder, asked, decided, world.settings, trained, observer=log)


def _train(asked: Recipe, decided: ControlPlan, world: _OpenWorld, folder: RunFolder, log: EventLog) -> Decision:
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


def _agent(decided: ControlPlan, world: _OpenWorld, environments: Environments | None, log: EventLog) -> Agent:
    from galley.methods.control.base import World, WorldFacts
    from galley.models.control.spec import network_spec

    kind = methods.control.registry.get(decided.method)
    method = kind(kind.Config.model_validate(decided.method_options))
    network = network_spec(decided.model or None, kind.network)
    facts = WorldFacts(world.observations, world.actions, network, decided.steps)
    return method.agent(World(facts, environments, world.episodes, decided.seed, decided.device, log.note))
