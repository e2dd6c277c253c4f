"""One pass of a user's module over rows of the real shape: what it gives back is checked before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import nn

_ROWS = 2


def check_class_scores(
    module: nn.Module, reference: str, *, row_shape: Sequence[int], num_classes: int, device: str
) -> None:
    """Refuse a module that does not score classes, or that nothing can be learned with.

    The pass is made in evaluation mode, and leaves weights, gradients and random state as they were.

    Args:
        module: the user's, on the device.
        reference: the words of the recipe.
        row_shape: shape of one row of the data, without the axis of the batch.
        num_classes: classes of the data.
        device: where the module is.

    Raises:
        GalleyError: `model-invalid`, with the shape of the rows, what came back, and what is expected.
    """
    import torch

    rows = f"rows of the shape {list(row_shape)} (a batch of {_ROWS} is {[_ROWS, *row_shape]})"
    wanted = f"expected [B, {num_classes}] floats, one score for each of the {num_classes} classes"
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    if not weights:
        raise GalleyError(
            "model-invalid", f"{reference} has no parameters to train", hint="layers must be attributes of the module"
        )
    was_training = module.training
    module.eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            scores = module(torch.rand(_ROWS, *row_shape, device=device))
            fits = isinstance(scores, torch.Tensor) and scores.shape == (_ROWS, num_classes)
            if fits and scores.is_floating_point() and scores.requires_grad:
                torch.autograd.grad(scores.float().sum(), weights, allow_unused=True)
                return
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # anything may be raised by a user's own code
        message = f"{reference} fails on {rows}: {_first_line(error)}; {wanted}"
        raise GalleyError("model-invalid", message, hint=f"{_HINT}; --debug shows the line that fails") from error
    finally:
        module.train(was_training)
    raise GalleyError("model-invalid", f"{reference} gave {_described(scores)} for {rows}; {wanted}", hint=_HINT)


_HINT = "__init__ is given num_classes and input_shape, the shape of a row, where it names them"


def _described(value: Any) -> str:
    """What came back, in words."""
    import torch

    if not isinstance(value, torch.Tensor):
        size = f" of {len(value)} items" if isinstance(value, tuple | list | dict) else ""
        return f"a {type(value).__name__}{size}"
    kind = str(value.dtype).removeprefix("torch.")
    loose = "" if value.requires_grad or not value.is_floating_point() else " that no parameter has a part in"
    return f"a tensor {list(value.shape)} of {kind}{loose}"


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
