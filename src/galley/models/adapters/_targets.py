"""Which modules an adapter goes into: every linear layer but the heads, or those that were named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from galley.base import GalleyError

if TYPE_CHECKING:
    from torch import nn

ALL_LINEAR = "all-linear"
HEADS = ("lm_head", "embed_out", "score", "classifier", "pre_classifier")
"""Output layers by their usual names: a language model's head stays frozen, a new classification head is trained."""


def target_names(module: nn.Module, targets: str | Sequence[str]) -> list[str]:
    """Names that PEFT matches modules with: a module is meant when its path is a name or ends in one.

    Raises:
        GalleyError: `adapter-targets` when a name matches nothing, or only modules that cannot be adapted.
    """
    linear = linear_modules(module)
    if not linear:
        raise GalleyError("adapter-targets", "the model has no linear layers to adapt", hint="override.tuning: full")
    if targets == ALL_LINEAR:
        return sorted({path.rpartition(".")[2] for path in linear} - set(HEADS)) or sorted(linear)
    names = [targets] if isinstance(targets, str) else list(targets)
    paths = [path for path, _ in module.named_modules() if path]
    for name in names:
        if not any(_means(name, path) for path in linear):
            message, hint = _complaint(name, paths, linear)
            raise GalleyError("adapter-targets", message, hint=hint)
    return names


def linear_modules(module: nn.Module) -> list[str]:
    """Paths of all linear layers except the output embedding (gpt2 calls its linear layers Conv1D)."""
    from torch import nn
    from transformers import PreTrainedModel
    from transformers.pytorch_utils import Conv1D

    head = module.get_output_embeddings() if isinstance(module, PreTrainedModel) else None
    kinds = (nn.Linear, Conv1D)
    return [path for path, part in module.named_modules() if isinstance(part, kinds) and part is not head]


def expert_tensors(module: nn.Module) -> list[str]:
    """Names of weights that hold many experts in one tensor [experts, out, in]: no linear layers, so not adapted."""
    return [name for name, weight in module.named_parameters() if weight.dim() == 3 and "expert" in name]


def _means(name: str, path: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _complaint(name: str, paths: Sequence[str], linear: Sequence[str]) -> tuple[str, str]:
    available = sorted({path.rpartition(".")[2] for path in linear})
    listed = ", ".join(available[:12])
    if any(_means(name, path) for path in paths):
        return f"the target {name!r} is not a linear layer", f"linear layers: {listed}"
    near = difflib.get_close_matches(name, [*available, *linear], n=1, cutoff=0.4)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"the target {name!r} matches no module", f"{guess}linear layers: {listed}"
