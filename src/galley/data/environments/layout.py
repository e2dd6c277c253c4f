"""Spaces as flat arrays: every observation becomes one row of numbers, and a description of what the columns mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from galley.base import GalleyError

if TYPE_CHECKING:
    from gymnasium import Space

    Array = np.ndarray[Any, Any]

ActionKind = Literal["discrete", "multi-discrete", "binary", "box"]


@dataclass(frozen=True)
class Leaf:
    """One simple space inside an observation.

    Args:
        name: its keys in nested dicts and places in tuples, joined by dots; empty for a plain space.
        kind: `vector` numbers, `image` (pixels from 0 to 255, height x width x channels or channels first),
            `discrete` (each column is a category's number, from 0).
        shape: of one value, as the environment gives it.
        start, stop: its columns in the flat row.
        sizes: categories of each column, for `discrete`.
        low: subtracted to make categories start at 0, for `discrete`.
    """

    name: str
    kind: Literal["vector", "image", "discrete"]
    shape: tuple[int, ...]
    start: int
    stop: int
    sizes: tuple[int, ...] = ()
    low: tuple[int, ...] = ()

    @property
    def num_features(self) -> int:
        """Numbers that a network gets of it: one for each category, or one for each column."""
        return sum(self.sizes) if self.kind == "discrete" else self.stop - self.start


@dataclass(frozen=True)
class ObservationLayout:
    """What the D columns of a flat observation mean. Stored with a policy, so that it can be used without the world.

    Args:
        leaves: in the order of their columns.
        dtype: `uint8` when all are images, so that replay memory stays small; else `float32`.
    """

    leaves: tuple[Leaf, ...]
    dtype: Literal["float32", "uint8"]

    @property
    def size(self) -> int:
        """D, numbers of one observation."""
        return self.leaves[-1].stop

    @property
    def is_vector(self) -> bool:
        """Whether a row is plain numbers that a network can take as they are."""
        return all(leaf.kind == "vector" for leaf in self.leaves)

    def flatten(self, value: Any, out: Array) -> None:
        """Write one observation of the environment into a row of D numbers."""
        if len(self.leaves) == 1 and not self.leaves[0].name:
            leaf = self.leaves[0]
            array = np.asarray(value)
            if array.size != out.size:
                raise _wrong_size(leaf, array)
            out[...] = array.reshape(-1) - np.asarray(leaf.low or 0) if leaf.low else array.reshape(-1)
            return
        for leaf in self.leaves:
            array = np.asarray(_inside(value, leaf.name)).reshape(-1)
            if array.size != leaf.stop - leaf.start:
                raise _wrong_size(leaf, array)
            out[leaf.start : leaf.stop] = array - np.asarray(leaf.low) if leaf.low else array

    def flatten_many(self, values: Any, num_envs: int) -> Array:
        """N observations, as a vector environment gives them (each leaf has N rows), as an array [N, D]."""
        out = np.empty((num_envs, self.size), self.dtype)
        for leaf in self.leaves:
            array = np.asarray(_inside(values, leaf.name)).reshape(num_envs, -1)
            out[:, leaf.start : leaf.stop] = array - np.asarray(leaf.low) if leaf.low else array
        return out

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ObservationLayout:
        """What `to_json` gave."""
        leaves = []
        for leaf in stored["leaves"]:
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in leaf.items()}
            leaves.append(Leaf(**values))
        return cls(tuple(leaves), stored["dtype"])


@dataclass(frozen=True)
class ActionLayout:
    """What an action is.

    Args:
        kind: `discrete` (one choice, arrays [N]), `multi-discrete` (several choices, [N, A]), `binary` (A switches,
            [N, A]) or `box` (A numbers between bounds, [N, A]).
        sizes: choices of each part: one number for `discrete`, A for `multi-discrete`, A twos for `binary`; for `box`
            A ones.
        low, high: bounds of each number of a `box`; lowest choice of discrete ones in `low`.
        shape: of one action, as the environment takes it.
    """

    kind: ActionKind
    sizes: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """A, parts of one action."""
        return len(self.sizes)

    @property
    def num_choices(self) -> int:
        """Logits of a policy over all parts; of a `box`, its numbers."""
        return sum(self.sizes)

    def native(self, action: Any) -> Any:
        """One row of an action array as the environment takes it."""
        if self.kind == "discrete":
            return int(action) + int(self.low[0])
        if self.kind == "multi-discrete":
            return (action + np.asarray(self.low, np.int64)).reshape(self.shape)
        if self.kind == "binary":
            return action.astype(np.int8).reshape(self.shape)
        return action.reshape(self.shape)

    def native_many(self, actions: Array) -> Array:
        """An action array as a vector environment takes it."""
        if self.kind == "discrete":
            return actions + int(self.low[0]) if self.low[0] else actions
        rows = len(actions)
        if self.kind == "multi-discrete":
            return (actions + np.asarray(self.low, np.int64)).reshape(rows, *self.shape)
        return actions.reshape(rows, *self.shape)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; infinite bounds as text."""
        return {**asdict(self), "low": [repr(x) for x in self.low], "high": [repr(x) for x in self.high]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ActionLayout:
        """What `to_json` gave."""
        bounds = {key: tuple(float(x) for x in stored[key]) for key in ("low", "high")}
        return cls(stored["kind"], tuple(stored["sizes"]), bounds["low"], bounds["high"], tuple(stored["shape"]))


def observation_layout(space: Space[Any], *, observe: Sequence[str] = ()) -> ObservationLayout:
    """The layout of an observation space.

    Args:
        space: box, discrete, multi-discrete, multi-binary, or dicts and tuples of these.
        observe: keys of a dict that are looked at; all when empty.

    Raises:
        GalleyError: `environment-unsupported` for other spaces, `data-options` for a key that does not exist.
    """
    from gymnasium import spaces

    if observe and not isinstance(space, spaces.Dict):
        raise GalleyError("data-options", "data.options.observe: the observation has no keys", hint="leave it out")
    if observe and isinstance(space, spaces.Dict):
        for key in observe:
            if key not in space.spaces:
                known = ", ".join(space.spaces)
                raise GalleyError("data-options", f"data.options.observe: no key {key!r}", hint=f"there are: {known}")
        space = spaces.Dict({key: space.spaces[key] for key in observe})
    leaves: list[Leaf] = []
    for name, simple in _leaves(space, ""):
        start = leaves[-1].stop if leaves else 0
        leaves.append(_leaf(name, simple, start, [key for key in getattr(space, "spaces", ()) if key != name]))
    if not leaves or not leaves[-1].stop:
        raise GalleyError("environment-unsupported", "the observation space is empty")
    images = all(leaf.kind == "image" for leaf in leaves)
    return ObservationLayout(tuple(leaves), "uint8" if images else "float32")


def action_layout(space: Space[Any]) -> ActionLayout:
    """The layout of an action space.

    Raises:
        GalleyError: `environment-unsupported` for other spaces than discrete, multi-discrete, multi-binary and box.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return ActionLayout("discrete", (int(space.n),), (float(space.start),), (float(space.start + space.n - 1),), ())
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        low = tuple(float(s) for s in space.start.reshape(-1))
        high = tuple(s + n - 1 for s, n in zip(low, sizes, strict=True))
        return ActionLayout("multi-discrete", sizes, low, high, tuple(space.nvec.shape))
    if isinstance(space, spaces.MultiBinary):
        number = int(np.prod(space.shape))
        return ActionLayout("binary", (2,) * number, (0.0,) * number, (1.0,) * number, tuple(space.shape))
    if math.prod(space.shape or (1,)) == 0:
        raise GalleyError("environment-unsupported", f"the action space {space} has no parts: nothing can be chosen")
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low = tuple(float(x) for x in space.low.reshape(-1))
        high = tuple(float(x) for x in space.high.reshape(-1))
        return ActionLayout("box", (1,) * len(low), low, high, tuple(space.shape))
    raise GalleyError(
        "environment-unsupported",
        f"actions of the space {space} cannot be learned",
        hint="discrete, multi-discrete, multi-binary and box of floats can; wrap the environment with a module:factory",
    )


def _leaves(space: Space[Any], name: str) -> Iterator[tuple[str, Space[Any]]]:
    from gymnasium import spaces

    parts: Iterator[tuple[Any, Space[Any]]]
    if isinstance(space, spaces.Dict):
        parts = iter(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = iter(enumerate(space.spaces))
    else:
        yield name, space
        return
    for key, inner in parts:
        yield from _leaves(inner, f"{name}.{key}" if name else str(key))


def _leaf(name: str, space: Space[Any], start: int, others: Sequence[Any] = ()) -> Leaf:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        shape = tuple(int(n) for n in space.shape)
        pixels = space.dtype == np.uint8 and len(shape) == 3
        return Leaf(name, "image" if pixels else "vector", shape, start, start + math.prod(shape))
    if isinstance(space, spaces.Discrete):
        return Leaf(name, "discrete", (), start, start + 1, (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        low = tuple(int(s) for s in space.start.reshape(-1))
        return Leaf(name, "discrete", tuple(space.nvec.shape), start, start + len(sizes), sizes, low)
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(int(n) for n in np.atleast_1d(space.shape))
        return Leaf(name, "vector", shape, start, start + math.prod(shape))
    place = f"the part {name!r} of the observation" if name else "the observation"
    named = bool(others) and all(isinstance(key, str) for key in others)
    raise GalleyError(
        "environment-unsupported",
        f"{place} is of the space {type(space).__name__}, which no network here takes",
        hint=f"leave it out: data.options.observe: [{', '.join(others)}]" if named else "wrap the environment",
    )


def _inside(value: Any, name: str) -> Any:
    for key in name.split(".") if name else ():
        value = value[int(key)] if isinstance(value, tuple) else value[key]
    return value


def _wrong_size(leaf: Leaf, array: Array) -> GalleyError:
    place = f"the part {leaf.name!r} of an observation" if leaf.name else "an observation"
    return GalleyError(
        "environment-invalid",
        f"{place} has the shape {list(array.shape)}; the environment's space says {list(leaf.shape)}",
        hint="correct the environment's observation_space",
    )
