"""The usual preprocessing of Atari games (Mnih et al. 2015; Machado et al. 2018), each part by a setting.

Actions are repeated, the pixelwise maximum of the last two pictures is shrunk and made grey. With `episodic_life` a
lost life ends an episode for learning, but the game goes on; what is reported is always the whole game's raw score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from galley.base import GalleyError
from galley.data.environments.serial import CONTINUES, SCORE
from galley.data.environments.wrappers import Wrapper, WrapperConfig

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class Config(WrapperConfig):
    """Settings of `atari`."""

    noops: int = Field(30, ge=0, description="a game begins with up to so many steps of doing nothing")
    frame_skip: int = Field(4, ge=1, description="frames that each action is repeated for")
    size: int = Field(84, ge=8, description="pixels a side")
    grey: bool = Field(True, description="brightness instead of colours")
    episodic_life: bool = Field(True, description="a lost life ends the episode, not the game")
    fire: bool = Field(True, description="press FIRE at the beginning where the game needs it")
    clip_reward: bool = Field(True, description="only the sign of a reward is learned from")


class Atari(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game with the preprocessing around it; observations are [size, size] or [size, size, 3] bytes.

    Args:
        env: of `ale_py`, made with `frameskip=1`.
        config: the parts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self._config = config
        shape = (config.size, config.size) if config.grey else (config.size, config.size, 3)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        game: Any = env.unwrapped
        self._ale = game.ale
        height, width = self._ale.getScreenDims()
        self._down = area_weights(height, config.size)
        self._across = area_weights(width, config.size).T.copy()
        pixels = (height, width) if config.grey else (height, width, 3)
        self._frames = np.zeros((2, *pixels), np.uint8)
        meanings = game.get_action_meanings()
        self._fire = meanings.index("FIRE") if config.fire and "FIRE" in meanings[1:2] else None
        self._lives = 0
        self._goes_on = False
        self._score, self._length = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a game, or go on with it after a lost life."""
        if self._goes_on:
            self._goes_on = False
            _, _, over, cut, info = self.env.step(0)
            if not (over or cut):
                self._press_fire()
                return self._seen(fresh=True), info
        self._score, self._length = 0.0, 0
        _, info = self.env.reset(seed=seed, options=options)
        if self._config.noops:
            for _ in range(int(self.env.unwrapped.np_random.integers(self._config.noops + 1))):
                _, _, over, cut, info = self.env.step(0)
                if over or cut:
                    _, info = self.env.reset(options=options)
        self._press_fire()
        self._lives = self._ale.lives()
        return self._seen(fresh=True), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Repeat an action; see `SCORE` and `CONTINUES` for what stands in the last value at an end."""
        config, total = self._config, 0.0
        over = cut = False
        for frame in range(config.frame_skip):
            _, reward, over, cut, info = self.env.step(action)
            total += float(reward)
            if frame >= config.frame_skip - 2 or over or cut:
                self._frames[0] = self._frames[1]
                self._grab(self._frames[1])
            if over or cut:
                break
        self._score += total
        self._length += 1
        game_over, lives = over or cut, self._ale.lives()
        lost = config.episodic_life and lives < self._lives and not game_over
        self._lives = lives
        if game_over or lost:
            self._goes_on = lost
            info = {**info, CONTINUES: lost, SCORE: None if lost else (self._score, self._length)}
        reward = float(np.sign(total)) if config.clip_reward else total
        return self._seen(fresh=config.frame_skip == 1), reward, over or lost, cut, info

    def _press_fire(self) -> None:
        if self._fire is not None:
            self.env.step(self._fire)

    def _grab(self, out: Array) -> None:
        if self._config.grey:
            self._ale.getScreenGrayscale(out)
        else:
            self._ale.getScreenRGB(out)

    def _seen(self, *, fresh: bool) -> Array:
        """The two newest frames as one small picture; with `fresh`, the screen as it is alone."""
        if fresh:
            self._grab(self._frames[1])
            self._frames[0] = self._frames[1]
        brightest = self._frames.max(axis=0).astype(np.float32)
        if self._config.grey:
            small: Array = self._down @ brightest @ self._across
        else:
            small = np.stack([self._down @ brightest[:, :, c] @ self._across for c in range(3)], axis=-1)
        pixels: Array = np.rint(small).astype(np.uint8)
        return pixels


def area_weights(before: int, after: int) -> Array:
    """Weights [after, before] that shrink a line of pixels: each new one is the mean of the area that it covers."""
    edges = np.arange(after + 1, dtype=np.float64) * before / after
    pixels = np.arange(before, dtype=np.float64)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: Array = (np.clip(covered, 0, None) * after / before).astype(np.float32)
    return weights


def _wrap(made: gymnasium.Env[Any, Any], options: Config) -> gymnasium.Env[Any, Any]:
    if getattr(made.unwrapped, "ale", None) is None:
        raise GalleyError(
            "environment-unsupported",
            f"data.options.wrappers.atari: {made} is no Atari game",
            hint="games are named gym:ALE/NAME-v5",
        )
    return Atari(made, options)


WRAPPER = Wrapper("atari", Config, _wrap, needs=lambda options: {"frameskip": 1})
