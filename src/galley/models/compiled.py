"""The element-wise parts of a layer as compiled loops: one pass over memory each, without Python's lock.

They work on bfloat16 rows on a CPU, compute in float32 and round once. Where numba is missing, `takes` says no, and
the callers do the same with several operations of torch. Rows are given by address and distance, so that views of
wider rows are taken as they are; the last axis is contiguous.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

KEYS = 16
"""Scores of a row are taken so many at a time."""

_TURNS = 4
"""Turns of each thread: one that was held up leaves more of them to the others."""


def takes(*tensors: Tensor) -> bool:
    """Whether the loops may run on these tensors."""
    low = all(tensor.dtype is torch.bfloat16 and tensor.device.type == "cpu" for tensor in tensors)
    return low and usable()


@cache
def usable() -> bool:
    """Whether numba is installed; it takes half a second to import, which therefore waits for the first use."""
    try:
        return _loops() is not None
    except ImportError:
        return False


@cache
def _loops() -> ModuleType:
    from galley.models import loops

    return loops


def norm(x_TD: Tensor, weight_D: Tensor, eps: float, out_TD: Tensor) -> Tensor:
    """Root-mean-square norm; returns 1 / rms, [T, 1] float32."""
    inverse_T1, epsilon = torch.empty(x_TD.shape[0], 1), ctypes.c_float(eps)
    numbers = (*_rows(x_TD), *_rows(out_TD), x_TD.shape[1], weight_D.data_ptr(), inverse_T1.data_ptr())
    _run("norm", x_TD, *numbers, ctypes.addressof(epsilon))
    return inverse_T1


def norm_again(x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, out_TD: Tensor) -> None:
    """The same with 1 / rms at hand."""
    numbers = (*_rows(x_TD), *_rows(out_TD), x_TD.shape[1], weight_D.data_ptr(), inverse_T1.data_ptr())
    _run("norm_again", x_TD, *numbers)


def norm_backward(grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, into_TD: Tensor) -> None:
    """Add the gradient by x to `into_TD`, float32."""
    rows = (*_rows(grad_TD), *_rows(x_TD), *_rows(into_TD))
    _run("norm_backward", x_TD, *rows, x_TD.shape[1], weight_D.data_ptr(), inverse_T1.data_ptr())


def norm_gradient(grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, out_TD: Tensor) -> None:
    """Write the gradient by x to `out_TD`."""
    rows = (*_rows(grad_TD), *_rows(x_TD), *_rows(out_TD))
    _run("norm_gradient", x_TD, *rows, x_TD.shape[1], weight_D.data_ptr(), inverse_T1.data_ptr())


def silu_product(gate_TI: Tensor, up_TI: Tensor, out_TI: Tensor) -> None:
    """`silu(gate) * up`."""
    _run("silu_product", gate_TI, *_rows(gate_TI), *_rows(up_TI), *_rows(out_TI), gate_TI.shape[1])


def silu_product_backward(grad_TI: Tensor, gate_TI: Tensor, up_TI: Tensor, d_gate_TI: Tensor, d_up_TI: Tensor) -> None:
    """Gradients of `silu_product` by its two factors."""
    rows = (*_rows(grad_TI), *_rows(gate_TI), *_rows(up_TI), *_rows(d_gate_TI), *_rows(d_up_TI))
    _run("silu_product_backward", gate_TI, *rows, gate_TI.shape[1])


def rotate(x_THE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> None:
    """Rotary position embedding in place, halves convention; cosine and sine are [T, 1, E / 2]."""
    _, heads, dim = x_THE.shape
    _run("rotate", x_THE, *_rows(x_THE), cos_TE.data_ptr(), sin_TE.data_ptr(), heads, dim // 2)


def turn(x_HTE: Tensor, cos_TE: Tensor, sin_TE: Tensor, out_HTE: Tensor, *, back: bool) -> None:
    """Rotary position embedding, halves convention, or its transpose (`back`), to another tensor."""
    heads, _, dim = x_HTE.shape
    places = [part.data_ptr() for part in (x_HTE, out_HTE, cos_TE, sin_TE)]
    steps = [2 * step for part in (x_HTE, out_HTE) for step in part.stride()[:2]]
    _run("turn", cos_TE, *places, *steps, heads, dim // 2, int(back))


def causal_softmax(x_RK: Tensor, scale: float, *, queries: int, seen_by_first: int, window: int | None = None) -> None:
    """Softmax of scaled scores in place, for queries that see the keys up to their own.

    Args:
        x_RK: scores; K must be a multiple of `KEYS`.
        scale: factor on them.
        queries: rows of each head, in the order of their positions.
        seen_by_first: keys that the first of them sees.
        window: keys that a query sees at most; None for all.
    """
    factor = ctypes.c_float(scale)
    numbers = (*_rows(x_RK), x_RK.shape[1], queries, seen_by_first, window or 0, ctypes.addressof(factor))
    _run("causal_softmax", x_RK, *numbers)


def softmax_gradient(grad_RK: Tensor, share_RK: Tensor, scale: float) -> None:
    """Turn the gradient by the shares into that by the unscaled scores, in place."""
    factor = ctypes.c_float(scale)
    rows = (*_rows(grad_RK), *_rows(share_RK))
    _run("softmax_gradient", grad_RK, *rows, grad_RK.shape[1], ctypes.addressof(factor))


def _rows(tensor: Tensor) -> tuple[int, int]:
    """Address, and bytes from row to row."""
    return tensor.data_ptr(), tensor.stride(0) * tensor.element_size()


def _run(name: str, like: Tensor, *numbers: int) -> None:
    """Do a loop over the rows of a tensor, in as many threads as torch may use here."""
    rows, threads, team = like.shape[0], torch.get_num_threads(), _torch_team()
    loop, a_turn = getattr(_loops(), name), -(-rows // (_TURNS * threads))
    packed = array("q", (rows, a_turn, 0, *numbers))
    address = packed.buffer_info()[0]
    if team is None or threads == 1:
        loop(address)
    else:
        team(loop, address, threads, 0)


@cache
def _torch_team() -> Callable[[Any, int, int, int], None] | None:
    """GNU OpenMP's (function, data, threads, flags), with the threads that torch's own loops keep awake.

    A second set of threads, numba's for example, would wait for the cores that these hold.
    """
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        team: Any = ctypes.CDLL(str(path)).GOMP_parallel
        team.argtypes, team.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
        return team  # type: ignore[no-any-return]
    return None
