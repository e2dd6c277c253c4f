"""What one step of a training computes, and with what states: all that memory and time depend on beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from galley.plan.layout import Recompute
from galley.recipe.schema import OptimizerName, Precision, Tuning


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A step.

    Args:
        sequence: tokens of a row.
        micro_batch: rows that a copy of the model computes at once.
        global_batch: rows of an optimiser step, over all copies.
        tuning: full, lora, dora, qlora, ...
        rank: of the adapter; ignored without one.
        targets: products that get an adapter: all of a layer, or queries and values only.
        precision: of the products; `fp8` and `fp4` keep bf16 weights beside.
        optimizer: decides the moments.
        recompute: what is computed again in the backward pass.
        recompute_layers: layers that this applies to, where it is not all of them.
        master_bytes: of the float32 copy of each weight that learns; 0 where the weight itself is updated.
        gradient_bytes: of the sum of gradients of each weight that learns.
        moment_bytes: of the optimiser's moments of each weight that learns; None takes the optimiser's own.
        fused_attention: scores are never written down (flash attention).
        fused_loss: logits are computed in chunks, never as a whole.
        attention_dropout: masks are kept for the backward pass.
        offload_optimizer, offload_parameters: to the host's memory.
        supervised_share: share of the tokens that are learned; others need no logits where the loss is fused.
        packed: rows hold no padding.
        frozen_models: models of this size that only run forward: a reference (DPO, KL), a reward model.
        learning_models: further models of this size that learn as well: a value model (PPO).
        generation_rows, generation_length: rows generated at once, and their tokens; 0 without generation.
        expert_imbalance: tokens of the busiest device's experts over the mean.
    """

    sequence: int
    micro_batch: int = 1
    global_batch: int = 1
    tuning: Tuning = "full"
    rank: int = 16
    targets: Literal["all", "query-value"] = "all"
    precision: Precision | str = "bf16"
    optimizer: OptimizerName = "adamw"
    recompute: Recompute = "none"
    recompute_layers: int | None = None
    master_bytes: float = 4.0
    gradient_bytes: float = 4.0
    moment_bytes: float | None = None
    fused_attention: bool = True
    fused_loss: bool = False
    attention_dropout: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    supervised_share: float = 1.0
    packed: bool = True
    frozen_models: float = 0.0
    learning_models: float = 0.0
    generation_rows: int = 0
    generation_length: int = 0
    expert_imbalance: float = 1.2

    def micro_batches(self, data: int) -> int:
        """Micro-batches of each copy in a step, at least one."""
        return max(1, round(self.global_batch / (self.micro_batch * data)))
