"""Bytes of weights, gradients and optimiser states on one device."""

from __future__ import annotations

from galley.plan.architecture import Architecture
from galley.plan.layout import Layout
from galley.plan.software import Software
from galley.plan.stages import Stage, whole_layers
from galley.plan.workload import Workload
from galley.recipe.schema import OptimizerName

MOMENT_BYTES: dict[OptimizerName, float] = {"adamw": 8, "adamw-8bit": 2, "adafactor": 0.1, "muon": 4, "sgd": 4}
"""Of the optimiser's moments of one weight that learns."""
_ADAPTER = 4.0
"""Adapters are float32 (PEFT's `autocast_adapter_dtype`), where their base is bf16."""


def states_of(a: Architecture, w: Workload, layout: Layout, software: Software, stage: Stage) -> dict[str, float]:
    """What is kept between steps, and the buffers of its exchange, by part.

    Experts are shared by fewer copies than the rest: those that hold the same ones. FSDP gathers two layers, and
    embedding and head as a unit of their own. Where gradients are summed in float32, an embedding's own is dense and
    whole beside the sum, while other micro-batches wait.

    With the optimiser on the host, its gradients go there as they are made (ZeRO-Offload 2101.06840).

    Source: Rajbhandari et al. 2019 (1910.02054), section 5, for what each stage of ZeRO shares.
    """
    blocks, tables = _parameters(a, layout, stage)
    experts = _expert_parameters(a, layout, stage)
    number = 4.0 if w.precision == "fp32" else 2.0
    base = software.nf4_bytes if w.tuning == "qlora" else number
    shares = layout.sharded_over
    expert_shares = max(1, shares // layout.expert)

    def share(common: float, of_experts: float, from_stage: int) -> float:
        """Bytes of one copy, where this stage of ZeRO and the later ones share them."""
        if layout.zero < from_stage:
            return common + of_experts
        return common / shares + of_experts / expert_shares

    weights = share(blocks * base + tables * number, experts * base, 3)
    whole = blocks * base + tables * number + experts * base
    if w.tuning == "full":
        learned, learned_experts = blocks + tables, experts
        master, gradient, adapters = w.master_bytes, w.gradient_bytes, 0.0
    else:
        learned, learned_experts = adapter_parameters(a, w) * stage.layers / layout.tensor, 0.0
        master, gradient, adapters = 0.0, _ADAPTER, share(learned * _ADAPTER, 0.0, 3)
    each = master + (MOMENT_BYTES[w.optimizer] if w.moment_bytes is None else w.moment_bytes)
    copies = 1 + w.learning_models
    parts = {
        "weights": adapters * copies + (0.0 if w.offload_parameters else weights * (copies + w.frozen_models)),
        "gradients": 0.0
        if w.offload_optimizer and layout.zero >= 2
        else copies * share(learned * gradient, learned_experts * gradient, 2),
        "optimizer": 0.0 if w.offload_optimizer else copies * share(learned * each, learned_experts * each, 1),
    }
    if w.tuning == "full" and layout.pipeline > 1 and stage.embedding and w.gradient_bytes > number:
        parts["gradients"] += copies * number * a.embedding_parameters / layout.tensor
    if layout.data * layout.context > 1 and layout.zero <= 2:
        parts["buckets"] = copies * (learned + learned_experts) * software.bucket_bytes
    if w.offload_parameters or (layout.zero >= 3 and shares > 1):
        layer = (blocks + experts) / max(1, stage.layers)
        held = 0.0 if w.offload_parameters else weights
        parts["gathered"] = min(2 * layer * base + tables * number, whole - held)
    if w.tuning == "qlora":
        parts["dequantised"] = number * a.hidden * max(a.ffn, a.queries, a.expert_ffn) / layout.tensor
    return parts


def _parameters(a: Architecture, layout: Layout, stage: Stage) -> tuple[float, float]:
    """Of the layers without their experts, and of embedding and head, on one device."""
    dense, mixed = whole_layers(a, stage)
    blocks = dense * a.dense_layer_parameters + mixed * a.expert_layer_parameters
    tables = float(a.embedding_parameters + a.positions * a.hidden) if stage.embedding else 0.0
    if stage.head and not (a.tied and stage.embedding):
        tables += a.embedding_parameters
    return blocks / layout.tensor, tables / layout.tensor


def _expert_parameters(a: Architecture, layout: Layout, stage: Stage) -> float:
    return whole_layers(a, stage)[1] * a.expert_parameters / (layout.expert * layout.tensor) if a.experts else 0.0


def adapter_parameters(a: Architecture, w: Workload) -> float:
    """Of the adapters of one layer: rank x (inputs + outputs) of each adapted product (LoRA 2106.09685).

    DoRA adds a magnitude for each output (2402.09353). Experts stay without adapters.
    """
    if w.targets == "query-value":
        shapes = [(a.hidden, a.queries), (a.hidden, a.keys)]
    else:
        shapes = [(a.hidden, a.queries), (a.hidden, a.keys), (a.hidden, a.keys), (a.queries, a.hidden)]
        ups = 0 if a.experts else 2 if a.gated else 1
        shapes += [(a.hidden, a.ffn)] * ups + ([(a.ffn, a.hidden)] if ups else [])
    magnitudes = sum(outputs for _, outputs in shapes) if w.tuning == "dora" else 0
    return float(w.rank * sum(inputs + outputs for inputs, outputs in shapes) + magnitudes)


def learned_parameters(a: Architecture, w: Workload) -> float:
    """All, or those of the adapters."""
    return float(a.num_parameters) if w.tuning == "full" else adapter_parameters(a, w) * a.layers
