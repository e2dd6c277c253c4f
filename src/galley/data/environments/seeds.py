"""Seeds of episodes: each has its own, made from the run's seed, so that any can be played again."""

from __future__ import annotations

import numpy as np


def episode_seed(seed: int, environment: int, episode: int) -> int:
    """A number below 2^31 for `reset(seed=...)`, independent for every copy and episode.

    Args:
        seed: of the run.
        environment: number of the copy.
        episode: number of the episode in that copy.
    """
    return int(np.random.SeedSequence((seed, environment, episode)).generate_state(1)[0] >> 1)
