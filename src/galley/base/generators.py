"""Random generators of numpy in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_MARK = "int:"


def generator_state(random: np.random.Generator) -> dict[str, Any]:
    """A generator's state with its numbers as text: they have 128 bits, which not every format keeps whole."""
    words: dict[str, Any] = _words(random.bit_generator.state)
    return words


def load_generator(random: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Put `generator_state` back into a generator of the same kind."""
    random.bit_generator.state = _numbers(state)


def _words(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _words(value) for key, value in state.items()}
    return f"{_MARK}{state}" if isinstance(state, int) else state


def _numbers(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _numbers(value) for key, value in state.items()}
    return int(state.removeprefix(_MARK)) if isinstance(state, str) and state.startswith(_MARK) else state
