"""Learning by acting: rounds of an agent between two lines of metrics, and evaluations in environments of their own."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.engines.single import peak_resident_bytes
from galley.learners.base import Evaluation, Position, Took

if TYPE_CHECKING:
    from galley.data.environments import Environments, Episode
    from galley.methods.control.base import Agent, Outcome
    from galley.plan.control import ControlPlan

_RECENT = 100
"""Episodes that the return in training is averaged over, as is usual."""


class AgentLearner:
    """An agent in its world.

    Args:
        plan: length, and how often something is said or measured.
        agent: what acts and learns.
        evaluation: environments of their own; None when there are none to play in (stored episodes alone).
    """

    score_name = "mean return"
    score_sign = 1.0
    evaluates_first = True

    def __init__(self, plan: ControlPlan, agent: Agent, evaluation: Environments | None) -> None:
        self.plan, self.agent, self.evaluation = plan, agent, evaluation
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._episodes = 0
        self._updates = 0

    def step(self, at: Position) -> Took:
        """Rounds until there is enough to say, an evaluation is due, or the training ends."""
        started, begun = time.monotonic(), at.step
        end = min(self._next_stop(begun), self.plan.steps)
        rounds: list[Outcome] = []
        taken = 0
        while not rounds or begun + taken < end:
            outcome = self.agent.step(self._progress(at, begun + taken))
            taken += outcome.steps
            rounds.append(outcome)
        ended = [episode for outcome in rounds for episode in outcome.episodes]
        self._count(ended, rounds)
        seconds = time.monotonic() - started
        return Took(taken, taken, self._facts(rounds, taken, seconds))

    def _next_stop(self, now: int) -> int:
        every = self.plan.evaluate_every
        return min(now + self.plan.log_every, (now // every + 1) * every)

    def _progress(self, at: Position, step: int) -> int:
        """Where schedules are: under a time limit alone, they end with the time."""
        if self.plan.minutes is None:
            return step
        share = min(1.0, at.seconds / (self.plan.minutes * 60))
        return max(step, int(share * self.plan.steps))

    def _count(self, ended: list[Episode], rounds: list[Outcome]) -> None:
        self._recent.extend((episode.ret, episode.length) for episode in ended)
        self._episodes += len(ended)
        self._updates += sum(outcome.updates for outcome in rounds)

    def _facts(self, rounds: list[Outcome], taken: int, seconds: float) -> dict[str, float]:
        learned = [outcome for outcome in rounds if outcome.updates]
        facts: dict[str, float] = {}
        if self._recent:
            returns, lengths = zip(*self._recent, strict=True)
            facts |= {"return": float(np.mean(returns)), "length": float(np.mean(lengths))}
        facts["episodes"] = self._episodes
        if learned:
            facts["loss"] = _mean([outcome.loss for outcome in learned])
            facts["grad_norm"] = _mean([outcome.grad_norm for outcome in learned])
            facts["learning_rate"] = learned[-1].learning_rate
            for name in learned[-1].metrics:
                facts[name] = _mean([outcome.metrics[name] for outcome in learned if name in outcome.metrics])
        facts["updates"] = self._updates
        facts["steps_per_second"] = taken / max(seconds, 1e-9)
        facts["memory_bytes"] = peak_resident_bytes()
        return facts

    def evaluate(self) -> Evaluation | None:
        """Mean return of the best actions, over the same first observations each time."""
        if self.evaluation is None:
            return None
        from galley.methods.control.playing import DecisionPlayer, evaluation_seed, play

        played = play(
            self.evaluation,
            DecisionPlayer(self.agent.decision),
            self.plan.evaluate_episodes,
            seed=evaluation_seed(self.plan.seed),
        )
        returns = np.array([episode.ret for episode in played])
        mean = float(returns.mean())
        facts = {
            "evaluation_return": mean,
            "evaluation_return_std": float(returns.std()),
            "evaluation_length": float(np.mean([episode.length for episode in played])),
        }
        if len(returns) > 1:
            facts["evaluation_return_interval"] = half_interval(returns)
        return Evaluation(mean, facts, {"return": mean})

    def state(self) -> dict[str, Any]:
        """Of the agent, and what is counted here."""
        return {
            "agent": self.agent.state(),
            "recent": [list(pair) for pair in self._recent],
            "episodes": self._episodes,
            "updates": self._updates,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put everything back."""
        self.agent.load_state(state["agent"])
        self._recent = deque(((ret, length) for ret, length in state["recent"]), maxlen=_RECENT)
        self._episodes, self._updates = state["episodes"], state["updates"]

    def is_finite(self) -> bool:
        """Whether all trained weights are numbers."""
        return all(
            bool(parameter.isfinite().all()) for part in self.agent.parts for parameter in self.agent.parameters(part)
        )


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def half_interval(returns: np.ndarray[Any, Any]) -> float:
    """Half of a 95 % interval of the mean of at least two values (Student's t)."""
    number = len(returns)
    return student_t(number - 1) * float(returns.std(ddof=1)) / math.sqrt(number)


def student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t distribution.

    Source: Cornish-Fisher expansion, Abramowitz & Stegun 26.7.5; within 0.3 % from 3 degrees of freedom on.
    """
    small = {1: 12.706, 2: 4.303}
    if freedom in small:
        return small[freedom]
    z, n = 1.959964, freedom
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4
