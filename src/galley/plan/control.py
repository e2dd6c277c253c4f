"""The plan of an agent's training: method, copies, length, memory, threads; each with its reason. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from galley.base import GalleyError, format_bytes, parse_bytes
from galley.plan.ledger import Ledger
from galley.plan.types import Decision, Hardware, PlanPart

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout
    from galley.methods.control.base import ControlMethod
    from galley.recipe.schema import Recipe

_PROCESS_BYTES = 450 << 20
"""Measured: a process that has imported torch, Gymnasium and a simulator."""
_STEPS = {"on-policy": 200_000, "off-policy": 50_000, "offline": 20_000}
_NO_LIMIT = 10**9
_EVALUATIONS, _LINES = 20, 400
_WIDE = 128
"""Units of a layer from which matrix products outweigh calls, so that a second thread helps."""


class ControlPredicted(PlanPart):
    """What the plan expects."""

    memory_parts: dict[str, int]
    """Bytes by part, known exactly but for the process."""
    memory_bytes: int


class ControlPlan(PlanPart):
    """Everything that agent and loop need to know."""

    task: Literal["control"] = "control"
    method: str
    method_options: dict[str, Any]
    model: str
    """Network, as in a recipe; empty for the method's own."""
    data: str
    hardware: Hardware
    device: str
    threads: int
    num_envs: int
    steps: int
    """Environment steps over all copies; offline, updates."""
    minutes: float | None
    until: dict[str, float]
    log_every: int
    """Steps between lines of metrics, at least."""
    evaluate_every: int
    evaluate_episodes: int
    judge_episodes: int
    checkpoint_every: int
    seed: int
    decisions: tuple[Decision, ...]
    predicted: ControlPredicted
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ControlCase:
    """What is known before anything is decided.

    Args:
        recipe: asked for.
        observations, actions: of the environment.
        has_environment: whether there is one to play in.
        has_episodes: whether the data are stored episodes.
        hardware: where it runs.
    """

    recipe: Recipe
    observations: ObservationLayout
    actions: ActionLayout
    has_environment: bool
    has_episodes: bool
    hardware: Hardware


def decide_control(case: ControlCase) -> ControlPlan:
    """Decide how to train an agent.

    Raises:
        GalleyError: `environment-unsupported` when the method cannot act there, `plan-contradiction`,
            `plan-does-not-fit` when its memories are larger than the machine's.
    """
    from galley import methods
    from galley.methods.control.base import WorldFacts
    from galley.models.control.spec import network_spec

    recipe, ledger = case.recipe, Ledger()
    name = _method(case, ledger)
    kind = methods.control.registry.get(name)
    _check_method(kind, case)
    options = recipe.method.options
    method = kind(kind.Config.model_validate(options))
    network = network_spec(recipe.model or None, kind.network)
    steps = _steps(case, kind, ledger)
    facts = WorldFacts(case.observations, case.actions, network, steps)
    threads = _threads(case, max((*network.hidden, 0)), ledger)
    device = ledger.choose(
        "device", recipe.override.device, "cpu", because="small networks spend their time in calls, not in products"
    )
    if method.num_envs:
        pinned = method.num_envs if "num_envs" in options else None
        ledger.choose("num_envs", pinned, method.num_envs, because=f"the default of {name}")
    every = recipe.evaluate.every or max(1, min(steps, recipe.budget.steps or steps) // _EVALUATIONS)
    return ControlPlan(
        method=name,
        method_options=options,
        model=recipe.model,
        data=recipe.data.path,
        hardware=case.hardware,
        device=device,
        threads=threads,
        num_envs=method.num_envs,
        steps=steps,
        minutes=recipe.budget.minutes,
        until=recipe.budget.until,
        log_every=max(1, min(steps, 10_000_000) // _LINES),
        evaluate_every=every,
        evaluate_episodes=recipe.evaluate.episodes,
        judge_episodes=10 * recipe.evaluate.episodes,
        checkpoint_every=recipe.checkpoint.every or 0,
        seed=recipe.seed,
        decisions=tuple(ledger.decisions),
        predicted=_memory(case, method.memory_bytes(facts), recipe.budget.memory),
        warnings=tuple(_warnings(kind.Config.model_validate(options), steps)),
    )


def _warnings(config: Any, steps: int) -> Iterator[str]:
    starts = getattr(config, "learning_starts", 0)
    if starts >= steps:
        yield f"nothing is learned: method.learning_starts is {starts:,}, and there are {steps:,} steps"


def _method(case: ControlCase, ledger: Ledger) -> str:
    discrete = case.actions.kind == "discrete"
    if case.has_episodes:
        best, why = "bc", "it imitates stored episodes, whatever the actions are"
    elif case.actions.kind == "box":
        best, why = "sac", "actions are numbers, and it needs the fewest steps in the environment"
    else:
        best, why = "ppo", f"actions are {'choices' if discrete else 'several choices'}, and it learns fast and calmly"
    return ledger.choose("method", case.recipe.method.name, best, because=why)


def _check_method(kind: type[ControlMethod], case: ControlCase) -> None:
    from galley import methods

    offline = kind.experience == "offline"
    if offline != case.has_episodes:
        needs = "stored episodes" if offline else "an environment to act in"
        given = "stored episodes" if case.has_episodes else "an environment"
        raise GalleyError(
            "plan-contradiction",
            f"method {kind.name} needs {needs}, and data names {given}",
            hint="data: episodes.npz, or another method" if offline else "data: gym:ID, or method: bc",
        )
    if case.actions.kind not in kind.action_kinds:
        suitable = [
            found.name
            for found in methods.control.registry
            if case.actions.kind in found.action_kinds and (found.experience == "offline") == case.has_episodes
        ]
        raise GalleyError(
            "environment-unsupported",
            f"method {kind.name} learns {' or '.join(kind.action_kinds)} actions; those of {case.recipe.data.path} are "
            f"{case.actions.kind}",
            hint=f"methods for such actions: {', '.join(suitable)}",
        )


def _steps(case: ControlCase, kind: type[ControlMethod], ledger: Ledger) -> int:
    budget = case.recipe.budget
    if budget.minutes is not None and budget.steps is None:
        ledger.choose("steps", None, f"until {budget.minutes:g} min", because="the budget is a time")
        return _NO_LIMIT
    unit = "updates" if kind.experience == "offline" else "environment steps"
    return ledger.choose(
        "steps",
        budget.steps,
        _STEPS[kind.experience],
        because=f"{unit}; the usual length for {kind.experience} methods",
    )


def _threads(case: ControlCase, widest: int, ledger: Ledger) -> int:
    images = any(leaf.kind == "image" for leaf in case.observations.leaves)
    heavy = images or widest >= _WIDE
    why = (
        "its products are large enough to share" if heavy else "its products are so small that sharing them costs more"
    )
    return ledger.choose(
        "threads", case.recipe.override.threads, max(1, case.hardware.cores if heavy else 1), because=why
    )


def _memory(case: ControlCase, parts: Mapping[str, int], limit: str | None) -> ControlPredicted:
    """CONFORMANCE: a replay memory larger than the machine's is an error before the start, with the figure."""
    named = {**{name: size for name, size in parts.items() if size}, "process": _PROCESS_BYTES}
    total = sum(named.values())
    available = case.hardware.memory_bytes if limit is None else parse_bytes(limit)
    if total > available:
        largest = max(named, key=lambda name: named[name])
        hints = {"replay": "set a smaller method.buffer_size", "process": "allow more in budget.memory, or free some"}
        raise GalleyError(
            "plan-does-not-fit",
            f"{format_bytes(total)} are needed, {format_bytes(named[largest])} of them for {largest}; there are "
            f"{format_bytes(available)}",
            hint=hints.get(largest, "fewer method.num_envs, a smaller model"),
        )
    return ControlPredicted(memory_parts=named, memory_bytes=total)
