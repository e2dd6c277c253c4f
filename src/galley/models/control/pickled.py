"""Reads what a pickle says without doing it: numpy arrays, spaces and statistics become plain records.

A pickle is a program that may call anything. This reader follows its steps, but names stay names and calls stay notes;
names outside a short list are refused, and sizes are bounded by the size of the pickle.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from galley.base import GalleyError

_NUMPY = ("numpy.core.", "numpy._core.")
_SPACES = {"Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict"}
_ALLOWED = {
    "numpy.dtype",
    "numpy.ndarray",
    "collections.OrderedDict",
    *(f"{core}multiarray.{name}" for core in _NUMPY for name in ("_reconstruct", "scalar")),
    *(f"{core}numeric._frombuffer" for core in _NUMPY),
    # generators that spaces were seeded with: passed over
    "numpy.random._pickle.__generator_ctor",
    "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._pcg64.PCG64",
    "numpy.random.bit_generator.SeedSequence",
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
    "stable_baselines3.common.vec_env.vec_normalize.VecNormalize",
    "stable_baselines3.common.running_mean_std.RunningMeanStd",
}
_KINDS = "biuf"
_MARK = object()


@dataclass(eq=False)
class Name:
    """A class or function that a pickle names."""

    path: str


@dataclass(eq=False)
class Made:
    """What a pickle would make by a call.

    Args:
        by: the name that would be called.
        arguments: of the call.
        state: that would be set afterwards.
        entries: of a mapping that would be filled.
    """

    by: str
    arguments: tuple[Any, ...]
    state: Any = None
    entries: dict[Any, Any] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """The state as attributes."""
        return self.state if isinstance(self.state, dict) else {}


def read_pickle(content: bytes) -> Any:
    """What a pickle holds: plain values, and `Made` for everything that a call would make. Nothing is called.

    Raises:
        GalleyError: `model-invalid` for damaged pickles and for names that are not on the list.
    """
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(content):
            machine.do(operation.name, argument)
        return machine.stack.pop()
    except GalleyError:
        raise
    except Exception as error:
        raise GalleyError(
            "model-invalid", f"the pickle is damaged ({type(error).__name__}: {error})", hint="save or copy it again"
        ) from error


_PUSHED = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": lambda: _MARK,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _PUSHED:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(self.since_mark()))
        elif name == "MEMOIZE":
            self.memory[len(self.memory)] = stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memory[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memory[argument])
        elif name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self.fill(name)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ") if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            stack.append(_allowed(module, attribute))
        elif name in ("REDUCE", "NEWOBJ", "BUILD"):
            self.make(name)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise GalleyError(
                "model-invalid", f"the pickle uses {name}, which plain values do not need", hint="save it again"
            )

    def make(self, name: str) -> None:
        """A call, noted."""
        top = self.stack.pop()
        if name == "BUILD":
            self.stack[-1].state = top
            return
        called = self.stack.pop()
        if not isinstance(called, Name) or not isinstance(top, tuple):
            raise ValueError("a call of what is no name")
        self.stack.append(Made(called.path, top))

    def fill(self, name: str) -> None:
        """Values into a list or a mapping."""
        count = {"SETITEM": 2, "APPEND": 1}.get(name)
        values = self.since_mark() if count is None else [self.stack.pop() for _ in range(count)][::-1]
        target = self.stack[-1]
        if name.startswith("APPEND"):
            target.extend(values)
            return
        mapping = target.entries if isinstance(target, Made) else target
        mapping.update(zip(values[::2], values[1::2], strict=True))

    def since_mark(self) -> list[Any]:
        """Values above the newest mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values


def _allowed(module: Any, attribute: Any) -> Name:
    path = f"{module}.{attribute}"
    package = str(module).split(".")
    is_space = package[:2] in (["gymnasium", "spaces"], ["gym", "spaces"]) and attribute in _SPACES
    if path not in _ALLOWED and not is_space:
        raise GalleyError(
            "model-invalid",
            f"the pickle names {path}, which is neither an array, a space, nor running statistics; nothing was run",
            hint="do not open this file with other programs unless you trust who made it",
        )
    return Name(f"space.{attribute}" if is_space else path.replace("numpy._core.", "numpy.core."))


def array(value: Any) -> np.ndarray[Any, Any]:
    """A numpy array or number that a pickle describes.

    Raises:
        GalleyError: `model-invalid` when it is none.
    """
    try:
        return _array(value)
    except GalleyError:
        raise
    except Exception as error:
        raise GalleyError(
            "model-invalid", f"an array in the pickle is damaged ({error})", hint="save or copy it again"
        ) from error


def _array(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, Made):
        return np.asarray(_plain_number(value))
    if value.by == "numpy.core.multiarray.scalar":
        return _decode(value.arguments[1], value.arguments[0], (), "C")
    if value.by == "numpy.core.numeric._frombuffer":
        content, dtype, shape, order = value.arguments
        return _decode(content, dtype, shape, order)
    if value.by == "numpy.core.multiarray._reconstruct":
        _, shape, dtype, fortran, content = value.state
        return _decode(content, dtype, shape, "F" if fortran else "C")
    raise ValueError(f"{value.by} is no array")


def _plain_number(value: Any) -> Any:
    if not isinstance(value, bool | int | float):
        raise ValueError(f"{type(value).__name__} is no number")
    return value


def _decode(content: Any, dtype: Any, shape: Any, order: str) -> np.ndarray[Any, Any]:
    kind = dtype_of(dtype)
    sizes = tuple(int(n) for n in shape)
    if min(sizes, default=0) < 0 or len(content) != math.prod(sizes) * kind.itemsize:
        raise ValueError(f"{len(content)} bytes are not {list(sizes)} of {kind}")
    return np.frombuffer(bytes(content), kind).reshape(sizes, order="F" if order == "F" else "C").copy()


def dtype_of(value: Any) -> np.dtype[Any]:
    """A type of numbers that a pickle describes.

    Raises:
        ValueError: for other types than numbers and truth values.
    """
    if isinstance(value, Made) and value.by == "numpy.dtype":
        kind = np.dtype(str(value.arguments[0]))
        if kind.kind in _KINDS:
            return kind.newbyteorder(value.state[1]) if value.state else kind
    raise ValueError(f"{value!r} is no type of numbers")
