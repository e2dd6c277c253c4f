"""The last part of an agent's job: prove that the saved policy is the trained one, judge it, show it, describe it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError, Observer
from galley.data.environments import EnvironmentSettings, Episode, open_environments
from galley.evaluate.control_card import write_control_card
from galley.evaluate.parity import Parity
from galley.evaluate.statistics import paired_interval
from galley.evaluate.verdict import Verdict
from galley.methods.control.playing import DecisionPlayer, Player, RandomPlayer, play, verdict_seed

if TYPE_CHECKING:
    from galley.models.control.decision import Decision
    from galley.plan.control import ControlPlan
    from galley.recipe.schema import Recipe
    from galley.runs import RunFolder

    Array = np.ndarray[Any, Any]

_COPIES = 10
_PARITY_ROWS = 256


def finish_control(
    folder: RunFolder,
    asked: Recipe,
    decided: ControlPlan,
    settings: EnvironmentSettings | None,
    trained: Decision,
    *,
    observer: Observer,
) -> Verdict | None:
    """Write result/parity.json, verdict.json, returns.png and README.md of a run whose policy is saved.

    Args:
        folder: of the run.
        asked: its recipe.
        decided: its plan.
        settings: of the environment; None when there is none to play in.
        trained: the policy as it was in memory.
        observer: is told of progress.

    Returns:
        The verdict, or None when the recipe asks for none or there is no environment.

    Raises:
        GalleyError: `below-quality` when the verdict is below what the recipe demands; everything is written before.
    """
    from galley.models.control.results import load_policy
    from galley.runs.return_plot import return_plot

    observer.phase("judge")
    reloaded = load_policy(folder.result)
    verdict = None
    if settings is not None and asked.evaluate.verdict:
        verdict = judge(reloaded, settings, decided.judge_episodes, seed=decided.seed)
        folder.write_result("verdict.json", verdict.model_dump(mode="json"))
    parity = decision_parity(trained, reloaded, seed=decided.seed)
    folder.write_result("parity.json", {"reloaded": parity.to_json()})
    return_plot(folder)
    write_control_card(folder, asked, decided, verdict)
    if verdict is not None and asked.evaluate.demand is not None:
        _demand(asked.evaluate.demand, verdict)
    return verdict


def judge(decision: Decision, settings: EnvironmentSettings, episodes: int, *, seed: int) -> Verdict:
    """The policy against random actions, from the same first observations.

    Args:
        decision: the policy.
        settings: of the environment.
        episodes: that each of them plays.
        seed: of the run; the episodes come from another one.
    """
    started = time.monotonic()
    environments = open_environments(replace(settings, num_envs=min(episodes, _COPIES), vector="auto"))
    try:
        both = [
            _returns(play(environments, player, episodes, seed=verdict_seed(seed)))
            for player in _players(decision, seed)
        ]
    finally:
        environments.close()
    tuned, base = both
    differences = (tuned - base).tolist()
    low, high = paired_interval(differences)
    better, worse = low > 0, high < 0
    verdict = Verdict(
        scorer="return",
        metric=f"mean return of {episodes} episodes",
        higher_is_better=True,
        baseline="random actions",
        base=float(base.mean()),
        tuned=float(tuned.mean()),
        difference=float(np.mean(differences)),
        interval=(low, high),
        p_value=None,
        n=episodes,
        better=better,
        worse=worse,
        sentence=_sentence(tuned, base, (low, high)),
        seconds=time.monotonic() - started,
    )
    return verdict


def _players(decision: Decision, seed: int) -> Sequence[Player]:
    return DecisionPlayer(decision), RandomPlayer(decision.spec.actions, verdict_seed(seed))


def _returns(played: Sequence[Episode]) -> Array:
    return np.array([episode.ret for episode in played])


def _sentence(tuned: Array, base: Array, interval: tuple[float, float]) -> str:
    low, high = interval
    difference = f"{tuned.mean() - base.mean():+.4g}, 95 % interval {low:+.4g} to {high:+.4g}"
    word = "better than" if low > 0 else "worse than" if high < 0 else "not better than"
    return (
        f"The policy is {word} random actions: its mean return over {len(tuned)} episodes is {tuned.mean():.4g} "
        f"(standard deviation {tuned.std():.3g}) against {base.mean():.4g}; difference {difference}."
    )


def _demand(wanted: str, verdict: Verdict) -> None:
    if (wanted == "better" and not verdict.better) or (wanted == "not-worse" and verdict.worse):
        raise GalleyError(
            "below-quality",
            f"the recipe demands a result that is {wanted.replace('-', ' ')}. {verdict.sentence}",
            hint="train longer (galley extend RUN budget.steps=+100000), or look at result/returns.png",
        )


def decision_parity(one: Decision, other: Decision, *, seed: int) -> Parity:
    """The largest difference of outputs, and the share of equal actions, over random observations.

    Args:
        one: a policy.
        other: another form of it.
        seed: of the observations.
    """
    import torch

    layout = one.spec.observations
    random = np.random.default_rng(seed)
    rows = random.standard_normal((_PARITY_ROWS, layout.size)).astype(np.float32)
    for leaf in layout.leaves:
        part = rows[:, leaf.start : leaf.stop]
        if leaf.kind == "image":
            part[:] = random.integers(0, 256, part.shape)
        elif leaf.kind == "discrete":
            part[:] = random.integers(0, np.asarray(leaf.sizes), part.shape)
    observations = torch.from_numpy(rows.astype(layout.dtype))
    players = DecisionPlayer(one), DecisionPlayer(other)
    actions = []
    for player in players:
        player.begin(_PARITY_ROWS)
        actions.append(np.asarray(player.act(observations.numpy(), None), np.float64).reshape(_PARITY_ROWS, -1))
    difference = np.abs(actions[0] - actions[1])
    return Parity(float(difference.max()), float((difference.max(axis=1) <= 1e-6).mean()))
