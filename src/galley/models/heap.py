"""How the C library keeps freed memory on a CPU: enough for the next step, and without gaps that stay."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


_PRODUCTS = "96"
"""Sizes of matrix products whose code the library keeps, each 0.5 to 1 MB; at 64 the fast path was slower."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next product, which asks for as much again (glibc only).

    Matrix products take room for a rearranged copy of the weight and free it, hundreds of times a step; glibc would
    return it to the system every time. Several arenas would each keep a copy.
    """
    # the library reads it at the first product
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRODUCTS)
    if (library := _libc()) is None:
        return
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # malloc.h
    library.mallopt(mmap_threshold, 8 << 20)  # larger ones would tear gaps that stay
    library.mallopt(trim_threshold, 256 << 20)
    library.mallopt(arena_max, 1)


def return_gaps() -> None:
    """Give freed memory back to the system, after something lasting was allocated between it (glibc only)."""
    if (library := _libc()) is not None:
        library.malloc_trim(0)
