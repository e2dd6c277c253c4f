"""Planning: how to train, why, and at what cost; pure functions that never import torch."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from galley.plan.decide import decide
    from galley.plan.explain import explain
    from galley.plan.hardware import detect, parse, resolve
    from galley.plan.predict import Prediction, predict
    from galley.plan.types import Hardware, Plan
else:
    __getattr__, __dir__, _ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "decide": ["decide"],
            "explain": ["explain"],
            "hardware": ["detect", "parse", "resolve"],
            "predict": ["Prediction", "predict"],
            "types": ["Hardware", "Plan"],
        },
    )

__all__ = ["Hardware", "Plan", "Prediction", "decide", "detect", "explain", "parse", "predict", "resolve"]
