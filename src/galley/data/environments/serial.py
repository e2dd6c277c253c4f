"""Every copy in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError
from galley.data.environments.base import Episode, Step
from galley.data.environments.layout import ActionLayout, ObservationLayout, action_layout, observation_layout
from galley.data.environments.rows import Acts, Rows, row_not_finite
from galley.data.environments.seeds import episode_seed

if TYPE_CHECKING:
    import gymnasium

    Array = np.ndarray[Any, Any]
    Make = Callable[[], gymnasium.Env[Any, Any]]

_LARGEST = 3.4028234663852886e38
"""Of float32: beyond it a reward would be stored as infinite. Not-a-number compares as false with it."""
CONTINUES = "galley.continues"
"""Key of `info` at an episode's end: true when the reset that follows goes on with the same game (episodic life)."""
SCORE = "galley.score"
"""Key of `info` at an episode's end: (return, length) to report instead; None when nothing is to be reported yet."""


STEP_GIVES = "step gives (observation, reward, terminated, truncated, info); the reward is one number, info a dict"


class Serial:
    """Every copy in this process.

    A simulator's inside cannot be stored, but it is a function of its seed and actions: the state of a copy is the
    seed of its game and the actions since, and to load it is to play them again.

    Args:
        make: makes one environment.
        num_envs: copies.
        observe: keys of a dict observation that are looked at; all when empty.
        first: number of the first copy, where other processes hold the ones before.
        watch: [1] int64, told the number of the copy that is about to act, for when this process dies.
    """

    def __init__(
        self,
        make: Make,
        num_envs: int,
        *,
        observe: Sequence[str] = (),
        first: int = 0,
        watch: Array | None = None,
    ) -> None:
        self.num_envs = num_envs
        self._environments = [make() for _ in range(num_envs)]
        one = self._environments[0]
        self.observations: ObservationLayout = observation_layout(one.observation_space, observe=observe)
        self.actions: ActionLayout = action_layout(one.action_space)
        self._first = first
        self.watch = np.zeros(1, np.int64) if watch is None else watch
        self._steps = [made.step for made in self._environments]
        self._masks = [made.get_wrapper_attr("action_masks") for made in self._environments if _has_masks(made)]
        self.masked = bool(self._masks)
        self._seed = 0
        self._episode = [0] * num_envs
        self._game = [0] * num_envs  # the episode whose reset began the game that is on
        self._cuts: list[list[int]] = [[] for _ in range(num_envs)]  # after how many actions of it the others began
        self._played: list[list[Any]] = [[] for _ in range(num_envs)]  # actions since that reset
        self._returns = [0.0] * num_envs
        self._rows = Rows(self.observations, num_envs)
        self._acts = Acts(self.actions)
        self._now = self._rows.new()

    def reset(self, seed: int) -> Array:
        """First observations of new episodes."""
        self._seed = seed
        self._now = self._rows.new()
        for index in range(self.num_envs):
            self._begin(index, 0, continues=False)
        self._must_be_finite(self._now)
        return self._now

    def step(self, actions: Array) -> Step:
        """One action in each copy; where an episode ends the next begins at once."""
        observations = self._now = self._rows.new()
        put, played, returns, watch, first = self._rows.put, self._played, self._returns, self.watch, self._first
        rewards, overs, cuts = [], [], []
        infos: list[tuple[int, Mapping[str, Any]]] = []
        chosen, natives = self._acts.split(actions)
        index = -1
        try:
            for index, step in enumerate(self._steps):
                watch[0] = first + index
                value, reward, over, cut, info = step(natives[index])
                played[index].append(chosen[index])
                put(index, value)
                reward = float(reward)
                if not -_LARGEST <= reward <= _LARGEST:
                    raise self._not_finite(index, reward)
                returns[index] += reward
                rewards.append(reward)
                overs.append(over)
                cuts.append(cut)
                if over or cut:
                    infos.append((index, info))
        except GalleyError:
            raise
        except (Exception, SystemExit) as error:
            raise self._step_failed(index, error) from error
        self._must_be_finite(observations)
        terminated = np.array(overs, np.bool_)
        truncated = np.array(cuts, np.bool_)
        finals: Array | None = None
        ended: list[Episode] = []
        if infos:
            truncated &= ~terminated
            finals = observations.copy()
            for index, told in infos:
                self._end(index, told, ended)
        return Step(observations, np.array(rewards, np.float32), terminated, truncated, finals, None, ended)

    def action_masks(self) -> Array | None:
        """What each environment's `action_masks()` says, its own or a wrapper's."""
        if not self.masked:
            return None
        masks: Array = np.array([ask() for ask in self._masks], np.bool_).reshape(self.num_envs, -1)
        if masks.shape[1] != self.actions.num_choices:
            raise GalleyError(
                "environment-invalid",
                f"action_masks() has {masks.shape[1]} entries for {self.actions.num_choices} choices",
            )
        return masks

    def state(self) -> Mapping[str, Any]:
        """Seed of each running game, and what was played in it."""
        import torch

        arrays = self.arrays()
        return {**arrays, "actions": [torch.from_numpy(actions) for actions in arrays["actions"]]}

    def arrays(self) -> dict[str, Any]:
        """The state with arrays of numpy, for processes that need no torch."""
        return {
            "seed": self._seed,
            "episodes": list(self._episode),
            "games": list(self._game),
            "cuts": [list(cut) for cut in self._cuts],
            "actions": [np.array(actions) for actions in self._played],
            "returns": list(self._returns),
        }

    def load_state(self, state: Mapping[str, Any]) -> Array:
        """Play the running games again up to where they were."""
        self._seed = state["seed"]
        self._now = self._rows.new()
        for index, game in enumerate(state["games"]):
            self._begin(index, game, continues=False)
            cuts = list(state["cuts"][index])
            chosen, natives = self._acts.split(np.asarray(state["actions"][index]))
            for number, native in enumerate(natives):
                self._replay(index, number, native, cuts)
            self._played[index] = list(chosen)
            while cuts:
                self._continue(index, cuts.pop(0))
            self._returns[index] = state["returns"][index]
        return self._now

    def close(self) -> None:
        """Close every copy."""
        for made in self._environments:
            made.close()

    def _length(self, index: int) -> int:
        """Steps of the running episode so far."""
        before = self._cuts[index][-1] if self._cuts[index] else 0
        return len(self._played[index]) - before

    def _begin(self, index: int, episode: int, *, continues: bool) -> None:
        self._episode[index] = episode
        self._returns[index] = 0.0
        if not continues:
            self._game[index] = episode
            self._played[index] = []
            self._cuts[index] = []
        self.watch[0] = self._first + index
        try:
            value, _ = self._environments[index].reset(seed=episode_seed(self._seed, self._first + index, episode))
        except (Exception, SystemExit) as error:
            raise self._failed(index, "reset", error) from error
        self._rows.put(index, value)

    def _end(self, index: int, info: Mapping[str, Any], ended: list[Episode]) -> None:
        """Report the episode that is over and begin the next."""
        if not isinstance(info, Mapping):
            raise GalleyError("environment-invalid", f"{self._place(index)}: info is {info!r}", hint=STEP_GIVES)
        score = info.get(SCORE, (self._returns[index], self._length(index)))
        if score is not None:
            ended.append(Episode(float(score[0]), int(score[1]), self._first + index))
        if info.get(CONTINUES):
            self._continue(index, len(self._played[index]))
        else:
            self._begin(index, self._episode[index] + 1, continues=False)

    def _continue(self, index: int, cut: int) -> None:
        self._cuts[index].append(cut)
        self._begin(index, self._episode[index] + 1, continues=True)

    def _replay(self, index: int, number: int, native: Any, cuts: list[int]) -> None:
        while cuts and cuts[0] == number:
            self._continue(index, cuts.pop(0))
        try:
            value, *_ = self._steps[index](native)
        except (Exception, SystemExit) as error:
            raise self._failed(index, f"step {number + 1}", error) from error
        self._rows.put(index, value)

    def _place(self, index: int) -> str:
        return f"environment {self._first + index}, step {self._length(index)} of episode {self._episode[index]}"

    def _not_finite(self, index: int, reward: float) -> GalleyError:
        return GalleyError(
            "environment-invalid",
            f"{self._place(index)}: the reward is {reward}",
            hint="rewards must be finite numbers",
        )

    def _must_be_finite(self, observations: Array) -> None:
        row = row_not_finite(observations)
        if row is not None:
            raise GalleyError(
                "environment-invalid",
                f"{self._place(row)}: the observation holds {observations[row][~np.isfinite(observations[row])][0]}",
                hint="observations must be finite numbers",
            )

    def _step_failed(self, index: int, error: BaseException) -> GalleyError:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is None:  # it was raised here, in reading what the environment gave
            what = f"environment {self._first + index}: what step gave cannot be read: {error}"
            return GalleyError("environment-invalid", what, hint=STEP_GIVES)
        return self._failed(index, f"step {self._length(index) + 1}", error)

    def _failed(self, index: int, when: str, error: BaseException) -> GalleyError:
        return GalleyError(
            "environment-failed",
            f"environment {self._first + index} raised at {when} of episode {self._episode[index]}: "
            f"{type(error).__name__}: {error}",
            hint="correct the environment; galley resume continues from the newest checkpoint",
        )


def _has_masks(made: gymnasium.Env[Any, Any]) -> bool:
    return bool(made.has_wrapper_attr("action_masks"))
