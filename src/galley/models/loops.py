# mypy: disable-error-code="untyped-decorator"
"""What `compiled` calls, in the part of Python that numba compiles; the machine code is kept beside this file.

A loop takes the address of its numbers, integers of 64 bits: rows all told, rows in a turn, turns taken so far (threads
take them in turns until none are left), and then what it works on, of each tensor the address of its first row and the
bytes from row to row.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from galley.models import bfloat16

numba: Any = importlib.import_module("numba")

HEADER = 3
NUMBERS = 14
_MANY = 1 << 40
_OPTIONS = {"nogil": True, "fastmath": True, "cache": True, "error_model": "numpy"}


_wide, _round, _exp = bfloat16.wide, bfloat16.rounded, bfloat16.exponential
_halves, _floats, _integers = bfloat16.halves, bfloat16.floats, bfloat16.integers
_next_turn, _softmax_row = bfloat16.next_turn, bfloat16.causal_softmax_row
_ONE, _ZERO = numba.float32(1), numba.float32(0)


@numba.njit(**_OPTIONS)
def _rows(at: int) -> Iterator[int]:
    """The rows that fall to this thread."""
    numbers = numba.carray(_integers(at), (HEADER,))
    first = _next_turn(at + 16) * numbers[1]
    while first < numbers[0]:
        for row in range(first, min(first + numbers[1], numbers[0])):  # noqa: UP028 numba has no `yield from`
            yield row
        first = _next_turn(at + 16) * numbers[1]


def _loop(function: Callable[[int], None]) -> Any:
    """Compile a loop, and give it as a C function of the address of its numbers."""
    return numba.cfunc(numba.types.void(numba.types.intp), **_OPTIONS)(function).ctypes


@_loop
def norm(at: int) -> None:
    """Root-mean-square norm, and 1 / rms of each row."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    x, out, width = (n[0], n[1]), (n[2], n[3]), n[4]
    weight, inverse = numba.carray(_floats(n[5]), (width,)), numba.carray(_floats(n[6]), (_MANY,))
    epsilon = numba.carray(_floats(n[7]), (1,))[0]
    for row in _rows(at):
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        total = _ZERO
        for i in range(width):
            total += _wide(source[i]) * _wide(source[i])
        scale = _ONE / numba.float32((total / numba.float32(width) + epsilon) ** 0.5)
        inverse[row] = scale
        for i in range(width):
            target[i] = _round(_wide(source[i]) * scale * weight[i])


@_loop
def norm_again(at: int) -> None:
    """The same with 1 / rms at hand."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    x, out, width = (n[0], n[1]), (n[2], n[3]), n[4]
    weight, inverse = numba.carray(_floats(n[5]), (width,)), numba.carray(_floats(n[6]), (_MANY,))
    for row in _rows(at):
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        scale = inverse[row]
        for i in range(width):
            target[i] = _round(_wide(source[i]) * scale * weight[i])


@_loop
def norm_backward(at: int) -> None:
    """Adds the gradient by x, float32."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    grad, x, into, width = (n[0], n[1]), (n[2], n[3]), (n[4], n[5]), n[6]
    weight, inverse = numba.carray(_floats(n[7]), (width,)), numba.carray(_floats(n[8]), (_MANY,))
    for row in _rows(at):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_floats(into[0] + row * into[1]), (width,))
        scale, along = inverse[row], _ZERO
        for i in range(width):
            along += _wide(given[i]) * weight[i] * _wide(source[i])
        along = along * scale * scale / numba.float32(width)
        for i in range(width):
            target[i] += scale * (_wide(given[i]) * weight[i] - _wide(source[i]) * along)


@_loop
def norm_gradient(at: int) -> None:
    """The gradient by x, bfloat16."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    grad, x, out, width = (n[0], n[1]), (n[2], n[3]), (n[4], n[5]), n[6]
    weight, inverse = numba.carray(_floats(n[7]), (width,)), numba.carray(_floats(n[8]), (_MANY,))
    for row in _rows(at):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        source = numba.carray(_halves(x[0] + row * x[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        scale, along = inverse[row], _ZERO
        for i in range(width):
            along += _wide(given[i]) * weight[i] * _wide(source[i])
        along = along * scale * scale / numba.float32(width)
        for i in range(width):
            target[i] = _round(scale * (_wide(given[i]) * weight[i] - _wide(source[i]) * along))


@_loop
def silu_product(at: int) -> None:
    """`silu(gate) * up`."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    gate, up, out, width = (n[0], n[1]), (n[2], n[3]), (n[4], n[5]), n[6]
    for row in _rows(at):
        gates = numba.carray(_halves(gate[0] + row * gate[1]), (width,))
        ups = numba.carray(_halves(up[0] + row * up[1]), (width,))
        target = numba.carray(_halves(out[0] + row * out[1]), (width,))
        for i in range(width):
            x = _wide(gates[i])
            target[i] = _round(x / (_ONE + _exp(-x)) * _wide(ups[i]))


@_loop
def silu_product_backward(at: int) -> None:
    """Gradients by both factors."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    grad, gate, up, d_gate, d_up = (n[0], n[1]), (n[2], n[3]), (n[4], n[5]), (n[6], n[7]), (n[8], n[9])
    width = n[10]
    for row in _rows(at):
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


@_loop
def rotate(at: int) -> None:
    """Rotary position embedding in place; a row has the heads of one token."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    x, cos, sin, heads, half = (n[0], n[1]), n[2], n[3], n[4], n[5]
    for token in _rows(at):
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


@_loop
def turn(at: int) -> None:
    """The same from one tensor to another, with a cosine and a sine for every element; or its transpose."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    by_head, by_token, heads, half = (n[4], n[6]), (n[5], n[7]), n[8], n[9]
    for token in _rows(at):
        low_cos = numba.carray(_halves(n[2] + 4 * token * half), (half,))
        high_cos = numba.carray(_halves(n[2] + 4 * token * half + 2 * half), (half,))
        sine = n[3] + 4 * token * half
        # Of the transpose, each half takes the other's sine, with the other sign.
        to_low = numba.carray(_halves(sine + 2 * half * n[10]), (half,))
        to_high = numba.carray(_halves(sine + 2 * half * (1 - n[10])), (half,))
        sign = numba.float32(2 * n[10] - 1)
        for head in range(heads):
            x = n[0] + head * by_head[0] + token * by_token[0]
            out = n[1] + head * by_head[1] + token * by_token[1]
            low, high = numba.carray(_halves(x), (half,)), numba.carray(_halves(x + 2 * half), (half,))
            new_low, new_high = numba.carray(_halves(out), (half,)), numba.carray(_halves(out + 2 * half), (half,))
            for i in range(half):
                new_low[i] = _round(_wide(low[i]) * _wide(low_cos[i]) + sign * _wide(high[i]) * _wide(to_low[i]))
            for i in range(half):
                new_high[i] = _round(_wide(high[i]) * _wide(high_cos[i]) - sign * _wide(low[i]) * _wide(to_high[i]))


@_loop
def causal_softmax(at: int) -> None:
    """Softmax in place of queries that see the keys up to their own, and no more than a window of them."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    x, width, queries, seen_by_first, window = (n[0], n[1]), n[2], n[3], n[4], n[5]
    scale = numba.carray(_floats(n[6]), (1,))[0]
    spare = numpy.empty(width, numpy.float32)
    for row in _rows(at):
        seen = row % queries + seen_by_first
        hidden = max(0, seen - window) if window else 0
        _softmax_row(x[0] + row * x[1], spare.ctypes.data, hidden, seen, width, scale)


@_loop
def softmax_gradient(at: int) -> None:
    """The gradient by the scores, in place of that by the shares."""
    n = numba.carray(_integers(at + 8 * HEADER), (NUMBERS,))
    grad, share, width = (n[0], n[1]), (n[2], n[3]), n[4]
    scale = numba.carray(_floats(n[5]), (1,))[0]
    for row in _rows(at):
        given = numba.carray(_halves(grad[0] + row * grad[1]), (width,))
        shares = numba.carray(_halves(share[0] + row * share[1]), (width,))
        along = _ZERO
        for i in range(width):
            along += _wide(given[i]) * _wide(shares[i])
        for i in range(width):
            given[i] = _round((_wide(given[i]) - along) * _wide(shares[i]) * scale)
