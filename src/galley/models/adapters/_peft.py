"""PEFT, without what is not needed of it, and without its warnings about what is decided here."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def peft(*, quantised: bool = False) -> Iterator[Any]:
    """PEFT, hiding bitsandbytes from it unless weights are quantised.

    PEFT imports bitsandbytes wherever it is installed; that compiles functions, which takes more than two seconds at
    every start of a training that quantises nothing. A bitsandbytes that is already imported stays visible.
    """
    hide = not quantised and "bitsandbytes" not in sys.modules
    if hide:
        sys.modules["bitsandbytes"] = None  # type: ignore[assignment]  # find_spec then says that there is none
    try:
        with _quiet():
            yield import_module("peft")
    finally:
        if hide:
            del sys.modules["bitsandbytes"]
            known = import_module("peft.import_utils")
            known.is_bnb_available.cache_clear()
            known.is_bnb_4bit_available.cache_clear()


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings about matters that are decided here (gpt2's transposed layers, tied heads)."""
    logger = logging.getLogger("peft")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
