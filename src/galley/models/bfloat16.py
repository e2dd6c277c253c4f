# mypy: disable-error-code="untyped-decorator"
"""What numba lacks for `loops`: bfloat16, a fast e^x, a counter for threads, and a softmax of 16 numbers at a time.

Each is a piece of LLVM code, for one number or for a vector of them. Left to itself, the compiler finds no way to take
several numbers at a time where the length of the row is known only when it runs and is mostly short.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any

numba: Any = importlib.import_module("numba")
cgutils: Any = importlib.import_module("numba.core.cgutils")
intrinsic: Any = importlib.import_module("numba.extending").intrinsic
ir: Any = importlib.import_module("llvmlite.ir")

LANES = 16
"""Numbers of a vector."""

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_HALVES, _INTS, _FLOATS = (ir.VectorType(kind, LANES) for kind in (_I16, _I32, _F32))
_FAST = ("fast",)
_intp, _half, _float = numba.types.intp, numba.types.uint16, numba.types.float32


def _like(kind: Any, value: Any) -> Any:
    """The type of one number, or of as many as the value has."""
    return ir.VectorType(kind, value.type.count) if isinstance(value.type, ir.VectorType) else kind


def _constant(kind: Any, number: float) -> Any:
    if isinstance(number, float):
        (number,) = struct.unpack("f", struct.pack("f", number))
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def _library(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """A function of LLVM's own, for one number or for a vector."""
    vector = next((kind for kind in arguments if isinstance(kind, ir.VectorType)), None)
    suffix = f".v{vector.count}f32" if vector else ".f32"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), f"llvm.{name}{suffix}")


# Integers as narrow as they are here keep the loops wide; numba itself would compute in 64 bits.


def _widen(builder: Any, half: Any) -> Any:
    wide = builder.zext(half, _like(_I32, half))
    return builder.bitcast(builder.shl(wide, _constant(wide.type, 16)), _like(_F32, half))


def _narrow(builder: Any, value: Any) -> Any:
    """Nearest, ties to even."""
    bits = builder.bitcast(value, _like(_I32, value))
    sixteen = _constant(bits.type, 16)
    odd = builder.and_(builder.lshr(bits, sixteen), _constant(bits.type, 1))
    rounded = builder.add(builder.add(bits, _constant(bits.type, 0x7FFF)), odd)
    return builder.trunc(builder.lshr(rounded, sixteen), _like(_I16, value))


def _exponential(builder: Any, value: Any) -> Any:
    """2^k times a polynomial (the coefficients are those of the Cephes library)."""
    kind = value.type

    def number(constant: float) -> Any:
        return _constant(kind, constant)

    x = builder.select(builder.fcmp_ordered("<", value, number(-87.0)), number(-87.0), value)
    x = builder.select(builder.fcmp_ordered(">", x, number(88.0)), number(88.0), x)
    k = builder.call(_library(builder, "rint", kind, kind), [builder.fmul(x, number(1.44269504088896))])
    rest = builder.fsub(x, builder.fmul(k, number(0.693359375)))
    rest = builder.fadd(rest, builder.fmul(k, number(2.12194440e-4)))
    series = number(1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        series = builder.fadd(builder.fmul(series, rest), number(term))
    series = builder.fadd(builder.fmul(builder.fmul(series, rest), rest), rest)
    exponent = builder.add(builder.fptosi(k, _like(_I32, value)), _constant(_like(_I32, value), 127))
    power = builder.bitcast(builder.shl(exponent, _constant(exponent.type, 23)), kind)
    return builder.fmul(builder.fadd(series, number(1.0)), power)


def _of_one(emit: Any, result: Any, argument: Any, doc: str) -> Any:
    """A function of one number for use in compiled loops."""

    @intrinsic
    def function(context: Any, value: Any) -> Any:
        return result(argument), lambda target, builder, signature, args: emit(builder, args[0])

    function.__doc__ = doc
    return function


wide = _of_one(_widen, _float, _half, "A bfloat16 as float32.")
rounded = _of_one(_narrow, _half, _float, "A float32 as the nearest bfloat16, ties to even.")
exponential = _of_one(_exponential, _float, _float, "e^x to float32's precision.")


def _pointer(element: Any) -> Any:
    """A function that turns an address into a pointer to elements of this type."""

    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], target.get_value_type(numba.types.CPointer(element)))

        return numba.types.CPointer(element)(_intp), generate

    return pointer


halves, floats, integers = _pointer(_half), _pointer(_float), _pointer(numba.types.int64)


@intrinsic
def next_turn(context: Any, counter: Any) -> Any:
    """Take a number from a counter that threads share, given by its address."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(_I64, 1), "monotonic")

    return numba.types.int64(_intp), generate


@intrinsic
def causal_softmax_row(context: Any, at: Any, spare: Any, hidden: Any, seen: Any, width: Any, scale: Any) -> Any:
    """Softmax in place of `scale` times a row of bfloat16; what is before `hidden` or from `seen` on becomes 0.

    `at` is the row's address, `spare` that of as many float32; `width` is a multiple of `LANES`.
    """

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_softmax(builder, *args)
        return target.get_dummy_value()

    return numba.types.void(_intp, _intp, _intp, _intp, _intp, _float), generate


def _emit_softmax(builder: Any, at: Any, spare: Any, hidden: Any, seen: Any, width: Any, scale: Any) -> None:
    lanes, zero, lowest = ir.Constant(at.type, LANES), _constant(_FLOATS, 0.0), _constant(_FLOATS, -3e38)
    row, exponentials = builder.inttoptr(at, _HALVES.as_pointer()), builder.inttoptr(spare, _FLOATS.as_pointer())
    begin, end = builder.sdiv(hidden, lanes), builder.sdiv(builder.add(seen, ir.Constant(at.type, LANES - 1)), lanes)
    first_seen, last_seen = (_splat(builder, builder.trunc(place, _I32)) for place in (hidden, seen))

    def scores(block: Any) -> tuple[Any, Any]:
        """16 numbers of the row, and which of them are seen."""
        places = _splat(builder, builder.trunc(builder.mul(block, lanes), _I32))
        places = builder.add(places, ir.Constant(_INTS, list(range(LANES))))
        is_seen = builder.and_(
            builder.icmp_signed(">=", places, first_seen), builder.icmp_signed("<", places, last_seen)
        )
        return _widen(builder, builder.load(builder.gep(row, [block]), align=2)), is_seen

    def blocks(start: Any, stop: Any) -> Any:
        return cgutils.for_range_slice(builder, start, stop, ir.Constant(at.type, 1), at.type)

    highest = cgutils.alloca_once_value(builder, lowest)
    with blocks(begin, end) as (block, _):
        x, is_seen = scores(block)
        x, before = builder.select(is_seen, x, lowest), builder.load(highest)
        builder.store(builder.select(builder.fcmp_ordered(">", x, before, _FAST), x, before), highest)
    most = _library(builder, "vector.reduce.fmax", _F32, _FLOATS)
    top = _splat(builder, builder.call(most, [builder.load(highest)], fastmath=("nnan", "nsz")))

    total = cgutils.alloca_once_value(builder, zero)
    factor = _splat(builder, scale)
    with blocks(begin, end) as (block, _):
        x, is_seen = scores(block)
        power = _exponential(builder, builder.fmul(builder.fsub(x, top, _FAST), factor, _FAST))
        power = builder.select(is_seen, power, zero)
        builder.store(power, builder.gep(exponentials, [block]), align=4)
        builder.store(builder.fadd(builder.load(total), power, _FAST), total)
    sum_up = _library(builder, "vector.reduce.fadd", _F32, _F32, _FLOATS)
    whole = builder.call(sum_up, [ir.Constant(_F32, 0.0), builder.load(total)], fastmath=("reassoc",))
    share = _splat(builder, builder.fdiv(ir.Constant(_F32, 1.0), whole))

    with blocks(begin, end) as (block, _):
        power = builder.load(builder.gep(exponentials, [block]), align=4)
        builder.store(_narrow(builder, builder.fmul(power, share)), builder.gep(row, [block]), align=2)
    for start, stop in ((ir.Constant(at.type, 0), begin), (end, builder.sdiv(width, lanes))):
        with blocks(start, stop) as (block, _):
            builder.store(_constant(_HALVES, 0), builder.gep(row, [block]), align=2)


def _splat(builder: Any, number: Any) -> Any:
    """A vector with this number in all its places."""
    kind = ir.VectorType(number.type, LANES)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, first, _constant(_INTS, 0))
