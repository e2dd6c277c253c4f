"""What LoRA and its relatives share: PEFT makes the matrices, Galley decides where and from which seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from galley.models.adapters._peft import peft
from galley.models.adapters._targets import HEADS, expert_tensors, target_names
from galley.models.loading import Note

if TYPE_CHECKING:
    from torch import nn


def add_low_rank(
    module: nn.Module,
    *,
    rank: int,
    alpha: float,
    dropout: float,
    targets: str | Sequence[str],
    seed: int,
    on_note: Note,
    dora: bool = False,
    quantised: bool = False,
) -> nn.Module:
    """A PeftModel around the module: everything frozen but the new float32 matrices, and a classification head.

    The matrices depend on the seed and on nothing else that is random.
    """
    import torch

    names = target_names(module, targets)
    experts = expert_tensors(module)
    if experts:
        on_note(
            "adapter", f"{len(experts)} tensors of experts stay frozen: they are no linear layers ({experts[0]}, ...)"
        )
    heads = [name for name, _ in module.named_children() if name in HEADS[2:]]
    with peft(quantised=quantised) as library, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = library.LoraConfig(
            r=rank,
            lora_alpha=alpha,
            lora_dropout=dropout,
            target_modules=names,
            use_dora=dora,
            modules_to_save=heads or None,
            task_type=_task_type(module, heads),
        )
        wrapped: nn.Module = library.get_peft_model(module, config, autocast_adapter_dtype=True)
    for weight in wrapped.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return wrapped


def _task_type(module: nn.Module, heads: Sequence[str]) -> Any:
    """PEFT's word for what the model does; it decides which class other tools load the adapter with."""
    from transformers import PreTrainedModel

    if not isinstance(module, PreTrainedModel):
        return None
    return "SEQ_CLS" if heads else "CAUSAL_LM"
