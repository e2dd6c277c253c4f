"""What observations and actions are, for files that do not say it: read off their arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from galley.base import GalleyError
from galley.data.environments.layout import ActionLayout, Leaf, ObservationLayout

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

OPTIONS = ("num_actions", "action_low", "action_high")


class Layouts(NamedTuple):
    """Of one world."""

    observations: ObservationLayout
    actions: ActionLayout


def guessed_layouts(observations: Array, actions: Array, options: Mapping[str, Any]) -> Layouts:
    """The layouts that arrays without a description suggest.

    Args:
        observations: [T, ...]; bytes [T, height, width, channels] are images, whole numbers [T] are categories, all
            else are vectors.
        actions: [T] whole numbers are choices, [T, A] whole numbers several choices, [T, A] truth values switches, and
            other numbers are boxes.
        options: `num_actions` (a number, or one for each part), `action_low` and `action_high`; else the largest choice
            and the outermost numbers of the data count.

    Raises:
        GalleyError: `data-options`.
    """
    return Layouts(_observations(observations), _actions(actions, options))


def inside(guess: Layouts, world: Layouts) -> bool:
    """Whether guessed layouts are those of a world, as far as arrays can tell: same kinds and sizes, within its bounds.

    What is seen in a file need not reach the world's bounds, nor its last choice.

    Args:
        guess: what `guessed_layouts` gave.
        world: the environment's own.
    """
    seen, real = guess.observations, world.observations
    if seen.dtype != real.dtype or len(seen.leaves) != len(real.leaves):
        return False
    leaves = zip(seen.leaves, real.leaves, strict=True)
    return all(_leaf_inside(a, b) for a, b in leaves) and _actions_inside(guess.actions, world.actions)


def _leaf_inside(seen: Leaf, real: Leaf) -> bool:
    if (seen.name, seen.kind, seen.start, seen.stop) != (real.name, real.kind, real.start, real.stop):
        return False
    if seen.kind == "image":
        return seen.shape == real.shape
    return seen.low == real.low and _none_larger(seen.sizes, real.sizes)


def _actions_inside(seen: ActionLayout, real: ActionLayout) -> bool:
    if seen.kind != real.kind or seen.size != real.size:
        return False
    if seen.kind != "box":
        return seen.low == real.low and _none_larger(seen.sizes, real.sizes)
    low, high = np.asarray(real.low), np.asarray(real.high)
    slack = 1e-6 * np.maximum(1.0, np.abs([low, high]))  # files round
    return bool((low - slack[0] <= seen.low).all() and (high + slack[1] >= seen.high).all())


def _none_larger(seen: tuple[int, ...], real: tuple[int, ...]) -> bool:
    return len(seen) == len(real) and all(a <= b for a, b in zip(seen, real, strict=True))


def _observations(array: Array) -> ObservationLayout:
    shape = tuple(int(n) for n in array.shape[1:])
    size = math.prod(shape)
    if array.dtype == np.uint8 and len(shape) == 3:
        return ObservationLayout((Leaf("", "image", shape, 0, size),), "uint8")
    if array.dtype.kind in "iu" and not shape:
        return ObservationLayout((Leaf("", "discrete", (), 0, 1, (int(array.max()) + 1,), (0,)),), "float32")
    return ObservationLayout((Leaf("", "vector", shape or (1,), 0, size),), "float32")


def _actions(array: Array, options: Mapping[str, Any]) -> ActionLayout:
    if array.dtype.kind == "f":
        return _box(array, options)
    _refuse(options, ("action_low", "action_high"), "actions are choices, which have no bounds")
    parts = 1 if array.ndim == 1 else array.shape[1]
    if array.dtype.kind == "b" and array.ndim == 2:
        _refuse(options, ("num_actions",), "actions are switches")
        return ActionLayout("binary", (2,) * parts, (0.0,) * parts, (1.0,) * parts, (parts,))
    seen = [int(n) + 1 for n in np.atleast_1d(array.max(axis=0))]
    sizes = tuple(_whole(options.get("num_actions"), parts, seen))
    high = tuple(float(n - 1) for n in sizes)
    if array.ndim == 1:
        return ActionLayout("discrete", sizes, (0.0,), high, ())
    return ActionLayout("multi-discrete", sizes, (0.0,) * parts, high, (parts,))


def _box(array: Array, options: Mapping[str, Any]) -> ActionLayout:
    _refuse(options, ("num_actions",), "actions are numbers, not choices")
    rows = array.reshape(len(array), -1)
    low = _bounds(options, "action_low", rows.min(axis=0))
    high = _bounds(options, "action_high", rows.max(axis=0))
    shape = tuple(int(n) for n in array.shape[1:]) or (1,)
    return ActionLayout("box", (1,) * rows.shape[1], low, high, shape)


def _refuse(options: Mapping[str, Any], keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if key in options:
            raise GalleyError("data-options", f"data.options.{key}: {why}", hint="leave it out")


def _whole(given: Any, parts: int, seen: list[int]) -> list[int]:
    if given is None:
        return seen
    numbers = [given] * parts if isinstance(given, int) else given
    good = isinstance(numbers, list) and len(numbers) == parts
    good = good and all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers)
    if not good:
        raise GalleyError("data-options", f"data.options.num_actions: {given!r} is no number of choices for {parts}")
    return list(numbers)


def _bounds(options: Mapping[str, Any], key: str, seen: Array) -> tuple[float, ...]:
    given = options.get(key)
    if given is None:
        return tuple(float(x) for x in seen)
    numbers = given if isinstance(given, list) else [given] * len(seen)
    if len(numbers) != len(seen) or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
        raise GalleyError("data-options", f"data.options.{key}: {given!r} is no bound for {len(seen)} numbers")
    return tuple(float(x) for x in numbers)
