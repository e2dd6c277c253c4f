"""Bytes that one token keeps for the backward pass, layer by layer, and at the loss."""

from __future__ import annotations

from dataclasses import dataclass

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.workload import Workload

_HALF = 2.0
_SINGLE = 4.0
_MASK = 1.0


@dataclass(frozen=True)
class LayerBytes:
    """Of one token in one layer, on one device.

    Args:
        kept: until the layer's backward pass.
        passing: while the layer is computed and no longer.
        boundary: the layer's input, all that full recomputation keeps.
    """

    kept: float
    passing: float
    boundary: float


def layer_bytes(a: Architecture, w: Workload, layout: Layout, software: Software, *, experts: bool) -> LayerBytes:
    """Of a layer.

    Counted as in Korthikanti et al. 2022 (2205.05198), section 4: what each operation's gradient needs, 2 bytes a
    number; a frozen product needs no input. With flash attention no scores.

    Args:
        a: the model.
        w: what a step computes.
        layout: how it is split.
        software: the engine's habits.
        experts: whether it is a layer with experts.
    """
    number = _SINGLE if w.precision == "fp32" else _HALF
    tensor, hidden = layout.tensor, a.hidden
    split = tensor if layout.sequence_parallel else 1
    gathered = tensor > 1 and layout.sequence_parallel and _keeps_gathered(software, layout.pipeline)
    inputs = _inputs(a, w, software, number)
    outside = 2 * number * hidden + software.copy_bytes * hidden
    outside += 2 * 2 * _SINGLE * hidden if a.norm_fp32 and not software.fused_layers else 0.0
    outside += 2 * _MASK * hidden if w.attention_dropout else 0.0
    kept = outside / split + (inputs if gathered else inputs / split)
    fused = software.fused_layers
    ffn = _experts(a, w, number, fused) if experts else _ffn(a, w, number, a.ffn, fused)
    inner = _attention(a, w, number) + ffn
    kept += inner / tensor
    whole = software.gather_copies * number * hidden if tensor > 1 else 0.0
    return LayerBytes(kept, whole, number * hidden / split)


def _keeps_gathered(software: Software, stages: int) -> bool:
    return software.keeps_gathered == "always" or (software.keeps_gathered == "one-stage" and stages == 1)


def _inputs(a: Architecture, w: Workload, software: Software, number: float) -> float:
    """Normed inputs of a layer's two blocks, for the gradients of weights: frozen ones without adapter need none."""
    if w.tuning == "full":
        return 2 * number * a.hidden
    adapted = 2 if w.targets == "all" else 1
    return adapted * (number + software.adapter_input_bytes) * a.hidden


def _attention(a: Architecture, w: Workload, number: float) -> float:
    """Queries, keys, values and their weighted sum; scores, exponentials and a mask without a fused kernel."""
    if a.mla is None:
        widths = 2 * a.queries + 2 * a.keys
    else:
        query_rank, kv_rank, rotary, value = a.mla
        widths = 2 * a.heads * a.head_dim + 2 * a.heads * value + 2 * (query_rank + kv_rank) + rotary
    scores = 0.0
    if not w.fused_attention and w.recompute == "none":
        seen = min(w.sequence, a.window) if a.window and a.window_layers == a.layers else w.sequence
        scores = a.heads * seen * (2 * number + (_MASK if w.attention_dropout else 0.0))
    return number * widths + scores


def _ffn(a: Architecture, w: Workload, number: float, inner: int, fused: bool) -> float:
    """Gate, its activation, the other factor and the product; without a gate only before and after the activation.

    A fused gate computes its activation again.
    """
    product = w.tuning == "full" or w.targets == "all"
    gated = 2 if fused else 3
    copies = (gated if a.gated else 1) + (1 if product else 0)
    return number * copies * inner


def _experts(a: Architecture, w: Workload, number: float, fused: bool) -> float:
    """Dispatched inputs and outputs, and the inner numbers, of every visited expert; the shared ones; the router."""
    visits = a.active_experts * w.expert_imbalance
    each = _ffn(a, w, number, a.expert_ffn, fused) + 2 * number * a.hidden
    shared = _ffn(a, w, number, a.expert_ffn * a.shared_experts, fused)
    return visits * each + shared + 2 * _SINGLE * a.experts


def logit_bytes(a: Architecture, w: Workload, layout: Layout, software: Software) -> float:
    """Of one token at the loss; chunks of a fused loss are small beside the rest.

    The head and its loss are split over the vocabulary.
    """
    if w.fused_loss:
        return 0.0
    return software.logit_bytes * a.vocab / layout.tensor
