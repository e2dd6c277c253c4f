"""Memory of a training on one device: the states and activations of every plan, and what Galley's own paths add.

Weights, gradients, optimiser and layers are counted where those of clusters are (`states.py`, `activations.py`). Here
stands what only one device has: the process around them on a processor, whose memory counts as a whole; the buffers of
the hand-written step; logits in chunks.
"""

from __future__ import annotations

from typing import Literal

from galley.base import MIB, GalleyError
from galley.models.spec import ModelSpec
from galley.plan.activations import layer_bytes
from galley.plan.architecture import Architecture
from galley.plan.case import device_kind
from galley.plan.families import architecture_of
from galley.plan.layout import Layout
from galley.plan.software import GALLEY, GALLEY_FUSED, Software
from galley.plan.stages import stages_of, whole_layers
from galley.plan.states import MOMENT_BYTES, learned_parameters, states_of
from galley.plan.workload import Workload

Path = Literal["fast", "fused", "general"]
"""How the step is computed: written by hand, by transformers with Galley's parts (processors), or as it is."""

LIBRARIES_BYTES = {"module": 340 * MIB, "encoder": 480 * MIB, "decoder": 545 * MIB}
"""Of a process on a processor, by what it imports: torch alone; transformers; transformers, PEFT and compiled loops.

Measured as resident memory less all tensors, code of products and freed memory; a third is pages of shared libraries.
"""
PRODUCTS_BYTES = 96 * 3 * MIB // 4
"""Code of matrix products that oneDNN keeps, 96 sizes of 0.5 to 1 MB (`models/heap.py`); micro-batches soon have as
many sizes."""
FREED_BYTES = 110 * MIB
"""Freed memory that the C library keeps for the next product (`models/heap.py`): 85 MiB where all micro-batches are
alike, about 135 where their sizes differ."""
CHUNK_BYTES = 64 * MIB
"""Of float32 logits that exist at once on the general path (`models/logprobs.py`)."""
CHUNK_ROWS = 128
"""Rows of logits that exist at once in the hand-written step (`models/fast/kernels.py`)."""
_MPS_RUNTIME = 600 * MIB
_SINGLE = 4.0
_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp32": _SINGLE}


def memory_parts(spec: ModelSpec, w: Workload, device: str, path: Path = "general", lanes: int = 1) -> dict[str, int]:
    """Bytes by part, in the order in which they are shown.

    Args:
        spec: shape of the model.
        w: a micro-batch; `sequence` x `micro_batch` tokens are computed at once.
        device: as in the plan.
        path: how the step is computed.
        lanes: of the hand-written step, each with its share of the rows.
    """
    a = known_architecture(spec)
    if a is None:
        parts = _of_unknown_layers(spec, w)
    else:
        software = GALLEY if path == "general" else GALLEY_FUSED
        layout = Layout()
        (stage, *_) = stages_of(a, layout, 1, balances_head=False)
        parts = states_of(a, w, layout, software, stage)
        parts["weights"] += max(0, spec.num_parameters - a.num_parameters) * _BYTES[str(w.precision)]
        parts["activations"] = (
            _fast_activations(a, w, lanes) if path == "fast" else _activations(a, w, layout, software)
        )
        parts["logits"] = _logits(a, w, path) if spec.kind == "decoder" else 0.0
    parts["runtime"] = _runtime(spec, device)
    return {name: int(size) for name, size in parts.items()}


def known_architecture(spec: ModelSpec) -> Architecture | None:
    """The model as arithmetic; None for modules, and for layers that a config does not state."""
    if spec.kind == "module":
        return None
    try:
        return architecture_of(spec)
    except GalleyError:
        return None


def trained_parameters(spec: ModelSpec, w: Workload) -> int:
    """Parameters that learn; 0 where that shows only when the model is built."""
    a = known_architecture(spec)
    if w.tuning == "full" or a is None:
        return spec.num_parameters
    return int(learned_parameters(a, w))


def _of_unknown_layers(spec: ModelSpec, w: Workload) -> dict[str, float]:
    """States by the number of parameters; what layers keep shows when they run."""
    number, learned = _BYTES[str(w.precision)], spec.num_parameters if w.tuning == "full" else 0
    return {
        "weights": spec.num_parameters * number,
        "gradients": learned * w.gradient_bytes,
        "optimizer": learned * (w.master_bytes + MOMENT_BYTES[w.optimizer]),
        "activations": 0.0,
        "logits": 0.0,
    }


def _activations(a: Architecture, w: Workload, layout: Layout, software: Software) -> float:
    """Of all layers, and the gradients of one layer's numbers; with recomputation the inputs of all and one layer."""
    (stage, *_) = stages_of(a, layout, 1, balances_head=False)
    counts = zip(whole_layers(a, stage), (False, True), strict=True)
    kinds = [(n, layer_bytes(a, w, layout, software, experts=experts)) for n, experts in counts if n]
    tokens, largest = w.sequence * w.micro_batch, max(layer.kept for _, layer in kinds)
    if w.recompute == "full":
        boundaries = sum(n * layer.boundary for n, layer in kinds)
        return tokens * (boundaries + 2 * largest)
    return tokens * (sum(n * layer.kept for n, layer in kinds) + largest)


def _fast_activations(a: Architecture, w: Workload, lanes: int) -> float:
    """Of the hand-written step (`models/fast/`), which computes all but a layer's two inputs again.

    A layer keeps its input, the one in its middle and the results of two adapters; each has two norms' float32. Beside
    are buffers of one layer for the rows of a micro-batch, made a quarter larger than needed: 14 hidden numbers
    (normed rows, queries, keys and values as rows and in groups, what attention gives, their gradients, those of the
    residual stream in float32) and 6 inner ones (gate, up, product, their gradients). The factors stand once more in
    the fused weights, and their gradients once in each lane.
    """
    number, tokens = _BYTES[str(w.precision)], w.sequence * w.micro_batch
    kept = a.layers * (number * (2 * a.hidden + 2 * w.rank) + 2 * _SINGLE)
    buffers = number * 1.25 * (14 * a.hidden + 6 * a.ffn)
    return tokens * (kept + buffers) + (1 + lanes) * number * learned_parameters(a, w)


def _logits(a: Architecture, w: Workload, path: Path) -> float:
    """Of a chunk: logits, their float32 copy and the gradient in the precision of the head.

    The hand-written step multiplies that gradient by the head, for which its weight is rearranged once more. The
    general path's exponentials are one more float32 chunk.
    """
    number, learned = _BYTES[str(w.precision)], w.sequence * w.micro_batch * w.supervised_share
    if path == "fast":
        return a.vocab * (min(learned, CHUNK_ROWS) * (2 * number + _SINGLE) + number * a.hidden)
    rows = min(learned, CHUNK_BYTES / (_SINGLE * a.vocab))
    return rows * a.vocab * (2 * number + 2 * _SINGLE)


def _runtime(spec: ModelSpec, device: str) -> float:
    """Of the process on a processor; of the context and the allocator on an accelerator."""
    kind = device_kind(device)
    if kind == "cpu":
        products = PRODUCTS_BYTES + FREED_BYTES if spec.kind == "decoder" else 0
        return float(LIBRARIES_BYTES[spec.kind] + products)
    return float(_MPS_RUNTIME) if kind == "mps" else GALLEY.runtime_bytes + GALLEY.workspace_bytes
