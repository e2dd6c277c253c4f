"""Seeds of episodes: each has its own, made from the run's seed, so that any can be played again."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def episode_seed(seed: int, environment: int, episode: int) -> int:
    """A number below 2^31 for `reset(seed=...)`, different for nearly all copies and episodes.

    Mixed by SplitMix64 (Steele, Lea and Flood 2014), which takes a tenth of the time of numpy's `SeedSequence`:
    short episodes begin often.

    Args:
        seed: of the run.
        environment: number of the copy.
        episode: number of the episode in that copy.
    """
    return _mixed(_mixed(_mixed(seed) ^ environment) ^ episode) >> 33


def _mixed(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
