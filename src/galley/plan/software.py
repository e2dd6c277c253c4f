"""What an engine keeps in memory and hides behind arithmetic: the habits by which programs differ on the same plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Software:
    """An engine's habits.

    Args:
        name: of the engine.
        keeps_gathered: with sequence parallelism, the gathered inputs of split products are kept for the backward pass:
            never, where the model is one stage, or always.
        gather_copies: buffers of whole, unsplit hidden states that tensor parallelism needs at once.
        copy_bytes: of a hidden number, kept by every layer beside what its operations need: casts, views that hold on
            to a whole fused projection, and what the allocator loses on them.
        adapter_input_bytes: of each number that enters an adapter (a float32 cast, a dropout's output).
        fused_layers: norms, gates and adapters keep just their inputs, in the weights' precision; the product of a gate
            is still kept for the next matrix product.
        logit_bytes: of a logit, where the loss is not fused: 2 as computed, and 4 each for the float32 copy, the
            softmax and the gradient; fewer where one takes the other's place.
        nf4_bytes: of a 4-bit weight with its share of a scale: one float32 to 64 weights, or 0.53 with the scales
            themselves in 8 bits (QLoRA 2305.14314, section 3).
        bucket_bytes: of each weight that learns, in buffers for the exchange between copies.
        balances_head: stages get equal work with the output head counted, else equally many layers.
        needs_full_pipeline: it refuses fewer micro-batches than stages less one, and stages without work.
        runtime_bytes: context, kernels and communicators of a device, outside the allocator.
        workspace_bytes: of the allocator, whatever the model.
        fragmentation: reserved over allocated memory.
        reports_reserved: whether the figure it prints is of reserved memory, else of allocated.
        overlaps_data: share of the copies' exchange that is hidden behind the backward pass.
        overlaps_tensor, overlaps_experts: share of those exchanges that is hidden behind products.
        product_share: of the speed that matrix products reach by themselves.
        attention_share: of the speed that the newest kernels of attention reach on the device.
        gather_share: of a ring's speed, when updated weights are gathered: less where each weight goes by itself.
        unfused: memory traffic of norms, activations and residuals over that of fused kernels.
        launch_seconds: least time of a layer, forward and backward, in which its kernels are started.
        tensor_launch_seconds: the same, for each device of tensor parallelism.
        crossing_launch_seconds: more, for each device of tensor parallelism, where a pipeline goes from node to node.
        handoff_seconds: of a micro-batch between stages, there and back, beside the transfer.
        overlaps_handoff: share of the transfer that is hidden.
        reduces_fp32: gradients are exchanged as they are summed up, else in 16 bit.
        step_seconds: of a step, whatever the model: logging, clipping, checks.
    """

    name: str
    keeps_gathered: Literal["never", "one-stage", "always"] = "never"
    gather_copies: float = 2.0
    copy_bytes: float = 0.0
    adapter_input_bytes: float = 2.0
    fused_layers: bool = False
    logit_bytes: float = 14.0
    nf4_bytes: float = 0.5 + 4 / 64
    bucket_bytes: float = 0.0
    balances_head: bool = False
    needs_full_pipeline: bool = False
    runtime_bytes: float = 0.9e9
    workspace_bytes: float = 0.2e9
    fragmentation: float = 1.04
    reports_reserved: bool = False
    overlaps_data: float = 0.8
    overlaps_tensor: float = 0.0
    overlaps_experts: float = 0.0
    product_share: float = 1.0
    attention_share: float = 1.0
    gather_share: float = 1.0
    unfused: float = 1.0
    launch_seconds: float = 0.0
    tensor_launch_seconds: float = 0.0
    crossing_launch_seconds: float = 0.0
    handoff_seconds: float = 0.0
    overlaps_handoff: float = 0.0
    reduces_fp32: bool = True
    step_seconds: float = 0.0


GALLEY = Software(name="galley", nf4_bytes=0.53)
GALLEY_FUSED = replace(GALLEY, adapter_input_bytes=0.0, fused_layers=True)
"""Llama-shaped decoders on a processor, once Galley's own norms, gates and adapters are in place."""
NANOTRON = Software(
    name="nanotron",
    keeps_gathered="one-stage",
    copy_bytes=8.6,
    gather_copies=3.0,
    logit_bytes=9.4,
    workspace_bytes=0.16e9,
    bucket_bytes=2.0,
    balances_head=True,
    needs_full_pipeline=True,
    fragmentation=1.0,  # what it prints already behaves like reserved memory
    runtime_bytes=1.2e9,  # context and communicators
    overlaps_data=0.68,
    gather_share=0.42,
    product_share=0.91,
    attention_share=0.65,  # flash attention 2 on H100
    unfused=1.4,
    launch_seconds=4.35e-3,
    tensor_launch_seconds=0.49e-3,
    crossing_launch_seconds=2.2e-3,  # seen in pipelines over nodes only; the engine's habit, not the network's
)
MEGATRON = Software(
    name="megatron", logit_bytes=10.0, overlaps_tensor=0.8, overlaps_experts=0.8, overlaps_handoff=0.9, unfused=0.38
)
MEGATRON_DEEPSPEED = Software(
    name="megatron-deepspeed", launch_seconds=2.6e-3, handoff_seconds=0.9e-3, step_seconds=3.6e-3, reduces_fp32=False
)
FSDP = Software(name="fsdp", overlaps_data=0.69, unfused=0.85, launch_seconds=1e-3)
TRANSFORMERS = Software(name="transformers", launch_seconds=6.9e-3, reports_reserved=True)
LITGPT = Software(name="litgpt", copy_bytes=3.0, logit_bytes=10.0)
FSDP_QLORA = Software(name="fsdp-qlora", logit_bytes=18.0, reports_reserved=True)
"""The loss of transformers up to 2024: bf16 logits, float32 copy, shifted copy, log-softmax and gradient."""
COLOSSAL = Software(name="colossalai", logit_bytes=18.0)
