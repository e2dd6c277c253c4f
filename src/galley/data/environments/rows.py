"""The fast way between one environment's values and rows of flat arrays: what can be known is decided once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from galley.base import GalleyError

if TYPE_CHECKING:
    from galley.data.environments.layout import ActionLayout, ObservationLayout

    Array = np.ndarray[Any, Any]


def row_not_finite(observations: Array) -> int | None:
    """The first row, of [N, D], that holds infinity or what is not a number; None when all are finite numbers.

    Weights that met such an observation are lost, and the learning rate would be blamed for it.
    """
    if observations.dtype == np.uint8:
        return None
    flat = observations.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(flat.dot(flat))):  # less time than to look at each; large numbers overflow
            return None
    bad = ~np.isfinite(observations).all(axis=1)
    return int(bad.argmax()) if bad.any() else None


class Rows:
    """Writes observations into rows.

    Args:
        layout: of the observations.
        num_envs: N, rows.
    """

    def __init__(self, layout: ObservationLayout, num_envs: int) -> None:
        self._layout = layout
        self._shape = (num_envs, layout.size)
        self._dtype = np.dtype(layout.dtype)
        leaf = layout.leaves[0]
        single = len(layout.leaves) == 1 and not leaf.name
        self._array_shape = leaf.shape if single and not leaf.low else None
        self._low = leaf.low[0] if single and leaf.kind == "discrete" and not leaf.shape else None
        self._flat = np.zeros(self._shape, self._dtype)
        self._shaped: Array = self._flat

    def new(self) -> Array:
        """A new array, [N, D], that `put` writes into from now on."""
        self._flat = np.zeros(self._shape, self._dtype)
        self._shaped = self._flat if self._array_shape is None else self._flat.reshape(-1, *self._array_shape)
        return self._flat

    def put(self, index: int, value: Any) -> None:
        """Write one observation of the environment into a row.

        Raises:
            GalleyError: `environment-invalid` when it is no numbers of the shape that the space says.
        """
        if type(value) is np.ndarray and value.shape == self._array_shape:
            self._shaped[index] = value
        elif self._low is not None and isinstance(value, (int, np.integer)):
            self._flat[index, 0] = value - self._low
        else:
            self._put_any(index, value)

    def _put_any(self, index: int, value: Any) -> None:
        try:
            self._layout.flatten(value, self._flat[index])
        except GalleyError:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise GalleyError(
                "environment-invalid",
                f"an observation is not what the environment's space says: {type(error).__name__}: {error}",
                hint="correct the environment's observation_space",
            ) from error


class Acts:
    """Splits an array of actions, [N] or [N, A], into what each copy takes.

    Args:
        layout: of the actions.
    """

    def __init__(self, layout: ActionLayout) -> None:
        self._layout = layout
        self._low = int(layout.low[0]) if layout.kind == "discrete" else 0
        self._native: Callable[[Any], Any] | None = None if layout.kind == "discrete" else layout.native
        if layout.kind == "box" and len(layout.shape) == 1:
            self._native = None

    def split(self, actions: Array) -> tuple[Sequence[Any], Sequence[Any]]:
        """Actions to remember, and the same as each environment takes them; neither shares memory with the array."""
        if self._layout.kind == "discrete":
            chosen = list(actions)  # numpy's numbers, as spaces sample them: Gymnasium checks these faster than int
            return chosen, list(actions + self._low) if self._low else chosen
        natives = list(actions.copy())
        if self._native is not None:
            natives = [self._native(row) for row in natives]
        return list(actions.copy()), natives
