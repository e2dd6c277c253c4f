"""How fast a training on one device runs: work a token over what the device really delivers."""

from __future__ import annotations

from galley.models.spec import ModelSpec
from galley.plan.architecture import Architecture
from galley.plan.case import device_kind
from galley.plan.catalogue import catalogue
from galley.plan.layer_time import HIDDEN_PASSES, INNER_PASSES
from galley.plan.memory import Path, known_architecture
from galley.plan.states import learned_parameters
from galley.plan.time_model import OPTIMIZER_BYTES
from galley.plan.types import Hardware, Measured
from galley.plan.workload import Workload

_TERA, _GIGA = 1e12, 1e9
# TFLOP/s that a training step of Galley gets from one core, by instruction set; measured on SmolLM2-135M.
_CORE_BF16 = {"amx_bf16": 0.3, "avx512_bf16": 0.12}
_CORE_FP32 = {"avx512f": 0.08, "avx2": 0.04}
_CORE_SLOW = 0.01
_CORE_GENERAL_PATH = 0.75  # of the hand-written step's speed
# Share of the data sheet's peak; published runs lie between 26 and 54 %.
_GPU_UTILISATION = 0.35
_GPU_UNKNOWN_TFLOPS = 60.0
_MPS_TFLOPS = 3.0
_QLORA_SLOWDOWN = {"cpu": 0.1, "cuda": 0.7, "mps": 0.3}
_STEP_SHARE = {"fast": 0.77, "fused": 0.49, "general": 0.49}
"""Of the speed that measured products and memory allow, that a whole step reaches: the rest starts operations, arranges
documents and waits. Measured once, on SmolLM2-135M on two cores with AMX."""


def flops_per_token(a: Architecture, w: Workload, mean_length: float) -> float:
    """Floating-point operations to learn from one token.

    Two a weight forwards, two for the input's gradient, and two for the weight's own where it is trained; a forward
    pass more with recomputing. Only learned tokens pass the output head. Source: Kaplan et al., 2001.08361, 2.1.

    Args:
        a: the model.
        w: how it is trained.
        mean_length: tokens of a row, on average.
    """
    head = a.embedding_parameters if a.head else 0
    blocks = a.active_parameters - a.table_parameters - head
    passes = (6 if w.tuning == "full" else 4) + (2 if w.recompute == "full" else 0)
    adapters = 0.0 if w.tuning == "full" else 6 * learned_parameters(a, w)
    attention = 3 * a.layers * a.attention_flops(round(mean_length), causal=a.head)
    return passes * (blocks + head * w.supervised_share) + adapters + attention


def tokens_per_second(
    spec: ModelSpec, w: Workload, hardware: Hardware, device: str, path: Path, mean_length: float
) -> float:
    """Likely speed; 0 when the model's work is unknown (a user's own module).

    Args:
        spec: shape of the model.
        w: a micro-batch of `sequence` tokens.
        hardware: of which one device is used.
        device: as in the plan.
        path: how the step is computed.
        mean_length: tokens of a row, on average.
    """
    a = known_architecture(spec)
    if a is None:
        return 0.0
    kind, measured = device_kind(device), hardware.measured
    if measured is not None and measured.device == kind and str(w.precision) in measured.tflops:
        speed = _STEP_SHARE[path] / _measured_seconds(a, w, measured, path, mean_length)
    else:
        speed = _rate(hardware, device, str(w.precision)) / flops_per_token(a, w, mean_length)
        speed *= _CORE_GENERAL_PATH if kind == "cpu" and path != "fast" else 1.0
    return speed * (_QLORA_SLOWDOWN.get(kind, _QLORA_SLOWDOWN["cuda"]) if w.tuning == "qlora" else 1.0)


def _measured_seconds(a: Architecture, w: Workload, measured: Measured, path: Path, mean_length: float) -> float:
    """Of one token: products at their measured speed, and all other traffic at that of the memory.

    The hand-written step multiplies by the weights of queries, keys and values, gate and up once more.
    """
    flops = flops_per_token(a, w, mean_length)
    if path == "fast":
        flops += 2 * a.layers * a.hidden * (a.queries + 2 * a.keys + 2 * a.ffn)
    number = 4.0 if w.precision == "fp32" else 2.0
    moved = number * a.layers * (HIDDEN_PASSES * a.hidden + INNER_PASSES * a.ffn)
    moved += learned_parameters(a, w) * OPTIMIZER_BYTES / w.sequence
    return flops / measured.flops(str(w.precision), w.sequence) + moved / (measured.memory_gbps * _GIGA)


def _rate(hardware: Hardware, device: str, precision: str) -> float:
    """Useful floating-point operations a second of one device."""
    if device == "cpu":
        table = _CORE_BF16 if precision == "bf16" else _CORE_FP32
        core = next((speed for name, speed in table.items() if name in hardware.features), _CORE_SLOW)
        return core * hardware.cores * _TERA
    if device.startswith("mps"):
        return _MPS_TFLOPS * _TERA
    known = catalogue().get(hardware.name)
    peak = known.bf16_tflops if known else _GPU_UNKNOWN_TFLOPS
    return peak * _GPU_UTILISATION * _TERA / (1 if precision != "fp32" else 8)
