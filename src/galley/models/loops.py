# mypy: disable-error-code="untyped-decorator"
"""What `compiled` calls, in the part of Python that numba compiles; the machine code is kept beside this file."""

from __future__ import annotations

import importlib
import struct
from typing import Any, TypeAlias

numba: Any = importlib.import_module("numba")
ir: Any = importlib.import_module("llvmlite.ir")
intrinsic: Any = importlib.import_module("numba.extending").intrinsic

Rows: TypeAlias = tuple[int, int]
"""Address, and bytes from row to row."""

_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()
_HALF: Any = numba.types.uint16
_FLOAT: Any = numba.types.float32
_jit = numba.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")


def _address(element: Any) -> Any:
    """Turns an integer into a pointer to elements of this type."""

    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], target.get_value_type(numba.types.CPointer(element)))

        return numba.types.CPointer(element)(numba.types.intp), generate

    return pointer


_halves, _floats = _address(_HALF), _address(_FLOAT)

# Integers as narrow as they are here keep the loops wide; numba itself would compute in 64 bits.


@intrinsic
def _wide(context: Any, half: Any) -> Any:
    """A bfloat16 as float32."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(builder.zext(args[0], _I32), ir.Constant(_I32, 16)), _F32)

    return _FLOAT(_HALF), generate


@intrinsic
def _round(context: Any, value: Any) -> Any:
    """A float32 as the nearest bfloat16, ties to even."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, sixteen = builder.bitcast(args[0], _I32), ir.Constant(_I32, 16)
        odd = builder.and_(builder.lshr(bits, sixteen), ir.Constant(_I32, 1))
        rounded = builder.add(builder.add(bits, ir.Constant(_I32, 0x7FFF)), odd)
        return builder.trunc(builder.lshr(rounded, sixteen), _I16)

    return _HALF(_FLOAT), generate


@intrinsic
def _exp(context: Any, value: Any) -> Any:
    """e^x to float32's precision: 2^k times a polynomial (the coefficients are those of the Cephes library)."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        def number(constant: float) -> Any:
            return ir.Constant(_F32, struct.unpack("f", struct.pack("f", constant))[0])

        low, high = number(-87.0), number(88.0)
        x = builder.select(builder.fcmp_ordered("<", args[0], low), low, args[0])
        x = builder.select(builder.fcmp_ordered(">", x, high), high, x)
        nearest = builder.module.declare_intrinsic("llvm.rint", [_F32])
        k = builder.call(nearest, [builder.fmul(x, number(1.44269504088896))])
        rest = builder.fsub(x, builder.fmul(k, number(0.693359375)))
        rest = builder.fadd(rest, builder.fmul(k, number(2.12194440e-4)))
        series = number(1.9875691500e-4)
        for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
            series = builder.fadd(builder.fmul(series, rest), number(term))
        series = builder.fadd(builder.fmul(builder.fmul(series, rest), rest), rest)
        exponent = builder.add(builder.fptosi(k, _I32), ir.Constant(_I32, 127))
        power = builder.bitcast(builder.shl(exponent, ir.Constant(_I32, 23)), _F32)
        return builder.fmul(builder.fadd(series, number(1.0)), power)

    return _FLOAT(_FLOAT), generate


_ONE, _ZERO = numba.float32(1), numba.float32(0)


@_jit
def norm(x: Rows, w: int, out: Rows, inv: int, rows: int, width: int, eps: float) -> None:
    """Root-mean-square norm, and 1 / rms of each row."""
    weight, inverse = numba.carray(_floats(w), (width,)), numba.carray(_floats(inv), (rows,))
    for row in range(rows):
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        total = _ZERO
        for i in range(width):
            total += _wide(source[i]) * _wide(source[i])
        scale = _ONE / numba.float32((total / numba.float32(width) + numba.float32(eps)) ** 0.5)
        inverse[row] = scale
        for i in range(width):
            target[i] = _round(_wide(source[i]) * scale * weight[i])


@_jit
def norm_again(x: Rows, w: int, out: Rows, inv: int, rows: int, width: int) -> None:
    """The same with 1 / rms at hand."""
    weight, inverse = numba.carray(_floats(w), (width,)), numba.carray(_floats(inv), (rows,))
    for row in range(rows):
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        scale = inverse[row]
        for i in range(width):
            target[i] = _round(_wide(source[i]) * scale * weight[i])


@_jit
def norm_backward(grad: Rows, x: Rows, w: int, inv: int, into: Rows, rows: int, width: int) -> None:
    """Adds the gradient by x, float32."""
    weight, inverse = numba.carray(_floats(w), (width,)), numba.carray(_floats(inv), (rows,))
    for row in range(rows):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_floats(into[0] + row * into[1]), (width,))
        scale, along = inverse[row], _ZERO
        for i in range(width):
            along += _wide(given[i]) * weight[i] * _wide(source[i])
        along = along * scale * scale / numba.float32(width)
        for i in range(width):
            target[i] += scale * (_wide(given[i]) * weight[i] - _wide(source[i]) * along)


@_jit
def norm_gradient(grad: Rows, x: Rows, w: int, inv: int, out: Rows, rows: int, width: int) -> None:
    """The gradient by x, bfloat16."""
    weight, inverse = numba.carray(_floats(w), (width,)), numba.carray(_floats(inv), (rows,))
    for row in range(rows):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        scale, along = inverse[row], _ZERO
        for i in range(width):
            along += _wide(given[i]) * weight[i] * _wide(source[i])
        along = along * scale * scale / numba.float32(width)
        for i in range(width):
            target[i] = _round(scale * (_wide(given[i]) * weight[i] - _wide(source[i]) * along))


@_jit
def silu_product(gate: Rows, up: Rows, out: Rows, rows: int, width: int) -> None:
    """`silu(gate) * up`."""
    for row in range(rows):
        gates = numba.carray(_halves(gate[0] + row * gate[1]), (width,))
        ups = numba.carray(_halves(up[0] + row * up[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        for i in range(width):
            x = _wide(gates[i])
            target[i] = _round(x / (_ONE + _exp(-x)) * _wide(ups[i]))


@_jit
def silu_product_backward(grad: Rows, gate: Rows, up: Rows, d_gate: Rows, d_up: Rows, rows: int, width: int) -> None:
    """Gradients by both factors."""
    for row in range(rows):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        gates = numba.carray(_halves(gate[0] + row * gate[1]), (width,))
        ups = numba.carray(_halves(up[0] + row * up[1]), (width,))
        by_gate = numba.carray(_halves(d_gate[0] + row * d_gate[1]), (width,))
        by_up = numba.carray(_halves(d_up[0] + row * d_up[1]), (width,))
        for i in range(width):  # two loops: with five rows in one, the compiler sees no way to compute many at once
            x = _wide(gates[i])
            by_up[i] = _round(_wide(given[i]) * x / (_ONE + _exp(-x)))
        for i in range(width):
            x = _wide(gates[i])
            share = _ONE / (_ONE + _exp(-x))
            by_gate[i] = _round(_wide(given[i]) * _wide(ups[i]) * (share + x * share * (_ONE - share)))


@_jit
def rotate(x: Rows, cos: int, sin: int, tokens: int, heads: int, half: int) -> None:
    """Rotary position embedding in place."""
    for token in range(tokens):
        cosine = numba.carray(_halves(cos + 2 * token * half), (half,))
        sine = numba.carray(_halves(sin + 2 * token * half), (half,))
        for head in range(heads):
            start = x[0] + token * x[1] + 4 * head * half
            low = numba.carray(_halves(start), (half,))
            high = numba.carray(_halves(start + 2 * half), (half,))
            for i in range(half):
                a, b, c, s = _wide(low[i]), _wide(high[i]), _wide(cosine[i]), _wide(sine[i])
                low[i] = _round(a * c - b * s)
                high[i] = _round(b * c + a * s)
