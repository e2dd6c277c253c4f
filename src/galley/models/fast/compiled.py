"""The element-wise parts of a layer as loops that numba compiles: one pass over memory each, without Python's lock.

They work on bfloat16 rows on a CPU, compute in float32 and round once. `USABLE` says whether numba is there; without it
`kernels` does the same with several operations of torch. Rows are given by address and distance, so that views of
wider rows are taken as they are; the last axis is contiguous.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import torch
from torch import Tensor

try:
    numba: Any = importlib.import_module("numba")
    ir: Any = importlib.import_module("llvmlite.ir")
    intrinsic: Any = importlib.import_module("numba.extending").intrinsic
except ImportError:
    USABLE = False
else:
    USABLE = True


def takes(*tensors: Tensor) -> bool:
    """Whether the loops may run on these tensors."""
    return USABLE and all(tensor.dtype is torch.bfloat16 and tensor.device.type == "cpu" for tensor in tensors)


def norm(x_TD: Tensor, weight_D: Tensor, eps: float, out_TD: Tensor) -> Tensor:
    """Root-mean-square norm; returns 1 / rms, [T, 1] float32."""
    inverse_T1 = torch.empty(x_TD.shape[0], 1)
    _norm(_rows(x_TD), weight_D.data_ptr(), _rows(out_TD), inverse_T1.data_ptr(), *x_TD.shape, eps)
    return inverse_T1


def norm_again(x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, out_TD: Tensor) -> None:
    """The same with 1 / rms at hand."""
    _norm_again(_rows(x_TD), weight_D.data_ptr(), _rows(out_TD), inverse_T1.data_ptr(), *x_TD.shape)


def norm_backward(grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, into_TD: Tensor) -> None:
    """Add the gradient by x to `into_TD`, float32."""
    pointers = (weight_D.data_ptr(), inverse_T1.data_ptr())
    _norm_backward(_rows(grad_TD), _rows(x_TD), *pointers, _rows(into_TD), *x_TD.shape)


def silu_product(gate_TI: Tensor, up_TI: Tensor, out_TI: Tensor) -> None:
    """`silu(gate) * up`."""
    _silu_product(_rows(gate_TI), _rows(up_TI), _rows(out_TI), *gate_TI.shape)


def silu_product_backward(grad_TI: Tensor, gate_TI: Tensor, up_TI: Tensor, d_gate_TI: Tensor, d_up_TI: Tensor) -> None:
    """Gradients of `silu_product` by its two factors."""
    rows = (_rows(grad_TI), _rows(gate_TI), _rows(up_TI), _rows(d_gate_TI), _rows(d_up_TI))
    _silu_product_backward(*rows, *gate_TI.shape)


def rotate(x_THE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> None:
    """Rotary position embedding in place, halves convention; cosine and sine are [T, 1, E / 2]."""
    tokens, heads, dim = x_THE.shape
    _rotate(_rows(x_THE), cos_TE.data_ptr(), sin_TE.data_ptr(), tokens, heads, dim // 2)


def _rows(tensor: Tensor) -> tuple[int, int]:
    """Address, and bytes from row to row."""
    return tensor.data_ptr(), tensor.stride(0) * tensor.element_size()


Rows: TypeAlias = tuple[int, int]


if USABLE:
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
                return ir.Constant(_F32, torch.tensor(constant).item())

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
    def _norm(x: Rows, w: int, out: Rows, inv: int, rows: int, width: int, eps: float) -> None:
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
    def _norm_again(x: Rows, w: int, out: Rows, inv: int, rows: int, width: int) -> None:
        weight, inverse = numba.carray(_floats(w), (width,)), numba.carray(_floats(inv), (rows,))
        for row in range(rows):
            source = numba.carray(_halves(x[0] + row * x[1]), (width,))
            target = numba.carray(_halves(out[0] + row * out[1]), (width,))
            scale = inverse[row]
            for i in range(width):
                target[i] = _round(_wide(source[i]) * scale * weight[i])

    @_jit
    def _norm_backward(grad: Rows, x: Rows, w: int, inv: int, into: Rows, rows: int, width: int) -> None:
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
    def _silu_product(gate: Rows, up: Rows, out: Rows, rows: int, width: int) -> None:
        for row in range(rows):
            gates = numba.carray(_halves(gate[0] + row * gate[1]), (width,))
            ups = numba.carray(_halves(up[0] + row * up[1]), (width,))
            target = numba.carray(_halves(out[0] + row * out[1]), (width,))
            for i in range(width):
                x = _wide(gates[i])
                target[i] = _round(x / (_ONE + _exp(-x)) * _wide(ups[i]))

    @_jit
    def _silu_product_backward(
        grad: Rows, gate: Rows, up: Rows, d_gate: Rows, d_up: Rows, rows: int, width: int
    ) -> None:
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
    def _rotate(x: Rows, cos: int, sin: int, tokens: int, heads: int, half: int) -> None:
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
