"""All parts of a model that are put in another form, where that is proven to say the same."""

from __future__ import annotations

from torch import nn

from galley.models.fused_gate import fuse_gates
from galley.models.fused_lora import fuse_lora
from galley.models.fused_norm import fuse_norms
from galley.models.fused_rotary import fuse_rotary

_PARTS = (
    ("adapted layer", fuse_lora),
    ("norm", fuse_norms),
    ("gated product", fuse_gates),
    ("rotary embedding", fuse_rotary),
)


def fuse(module: nn.Module) -> str:
    """Fuse what can be fused in a loaded model, and say how much that was; empty where nothing was."""
    counts = [(fuse_part(module), name) for name, fuse_part in _PARTS]
    found = [f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count]
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))
