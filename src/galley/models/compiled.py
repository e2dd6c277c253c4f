"""The element-wise parts of a layer as compiled loops: one pass over memory each, without Python's lock.

They work on bfloat16 rows on a CPU, compute in float32 and round once. Where numba is missing, `takes` says no, and
the callers do the same with several operations of torch. Rows are given by address and distance, so that views of
wider rows are taken as they are; the last axis is contiguous.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor


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
    inverse_T1 = torch.empty(x_TD.shape[0], 1)
    _loops().norm(_rows(x_TD), weight_D.data_ptr(), _rows(out_TD), inverse_T1.data_ptr(), *x_TD.shape, eps)
    return inverse_T1


def norm_again(x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, out_TD: Tensor) -> None:
    """The same with 1 / rms at hand."""
    _loops().norm_again(_rows(x_TD), weight_D.data_ptr(), _rows(out_TD), inverse_T1.data_ptr(), *x_TD.shape)


def norm_backward(grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, into_TD: Tensor) -> None:
    """Add the gradient by x to `into_TD`, float32."""
    pointers = (weight_D.data_ptr(), inverse_T1.data_ptr())
    _loops().norm_backward(_rows(grad_TD), _rows(x_TD), *pointers, _rows(into_TD), *x_TD.shape)


def norm_gradient(grad_TD: Tensor, x_TD: Tensor, inverse_T1: Tensor, weight_D: Tensor, out_TD: Tensor) -> None:
    """Write the gradient by x to `out_TD`."""
    pointers = (weight_D.data_ptr(), inverse_T1.data_ptr())
    _loops().norm_gradient(_rows(grad_TD), _rows(x_TD), *pointers, _rows(out_TD), *x_TD.shape)


def silu_product(gate_TI: Tensor, up_TI: Tensor, out_TI: Tensor) -> None:
    """`silu(gate) * up`."""
    _loops().silu_product(_rows(gate_TI), _rows(up_TI), _rows(out_TI), *gate_TI.shape)


def silu_product_backward(grad_TI: Tensor, gate_TI: Tensor, up_TI: Tensor, d_gate_TI: Tensor, d_up_TI: Tensor) -> None:
    """Gradients of `silu_product` by its two factors."""
    rows = (_rows(grad_TI), _rows(gate_TI), _rows(up_TI), _rows(d_gate_TI), _rows(d_up_TI))
    _loops().silu_product_backward(*rows, *gate_TI.shape)


def rotate(x_THE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> None:
    """Rotary position embedding in place, halves convention; cosine and sine are [T, 1, E / 2]."""
    tokens, heads, dim = x_THE.shape
    _loops().rotate(_rows(x_THE), cos_TE.data_ptr(), sin_TE.data_ptr(), tokens, heads, dim // 2)


def _rows(tensor: Tensor) -> tuple[int, int]:
    """Address, and bytes from row to row."""
    return tensor.data_ptr(), tensor.stride(0) * tensor.element_size()
