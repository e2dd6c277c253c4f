"""How fast a training runs: work a token over what the device really delivers."""

from __future__ import annotations

from dataclasses import dataclass

from galley.models.spec import ModelSpec
from galley.plan.case import device_kind
from galley.plan.catalogue import catalogue
from galley.plan.memory import block_parameters, trained_parameters
from galley.plan.types import Hardware
from galley.recipe.schema import Precision, Tuning

_TERA = 1e12
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
"""Low, likely and high, as shares of the likely speed."""


@dataclass(frozen=True)
class Work:
    """What a token costs, beside the model's shape.

    Args:
        tuning, precision, device, checkpointing, fast_path: as in the plan.
        rank: of the adapter; ignored without one.
        supervised_share: share of the tokens that are learned; only these pass the output head.
        mean_length: tokens of a row, on average.
    """

    tuning: Tuning
    precision: Precision
    device: str
    mean_length: float
    rank: int = 16
    checkpointing: str = "none"
    supervised_share: float = 1.0
    fast_path: bool = False


def flops_per_token(spec: ModelSpec, work: Work) -> float:
    """Floating-point operations to learn from one token; 0 for a module whose shape is unknown.

    Two a weight forwards, two for the input's gradient, and two for the weight's own where it is trained; a forward
    pass more with recomputing. Source: Kaplan et al., 2001.08361, section 2.1.
    """
    blocks = _active_block_parameters(spec)
    passes = (6 if work.tuning == "full" else 4) + (2 if work.checkpointing == "full" else 0)
    adapters = 0 if work.tuning == "full" else 6 * trained_parameters(spec, work.tuning, work.rank)
    head = spec.vocab_size * spec.hidden_size * work.supervised_share if spec.kind == "decoder" else 0.0
    attention = 6 * spec.num_layers * spec.hidden_size * work.mean_length
    return passes * (blocks + head) + adapters + attention


def tokens_per_second(spec: ModelSpec, work: Work, hardware: Hardware) -> float:
    """Likely speed; 0 when the model's work is unknown (a user's own module)."""
    flops = flops_per_token(spec, work)
    if flops <= 0:
        return 0.0
    rate = _rate(hardware, work.device, work.precision)
    if not work.fast_path and work.device == "cpu":
        rate *= _CORE_GENERAL_PATH
    if work.tuning == "qlora":
        rate *= _QLORA_SLOWDOWN[device_kind(work.device)]
    return rate / flops


def _active_block_parameters(spec: ModelSpec) -> float:
    """Weights that one token passes through: of the experts only the chosen ones."""
    blocks = float(block_parameters(spec))
    if spec.num_experts and spec.num_experts_per_token:
        expert = 3 * spec.hidden_size * (spec.intermediate_size or 4 * spec.hidden_size) * spec.num_layers
        blocks -= min(expert * (spec.num_experts - spec.num_experts_per_token), 0.95 * blocks)
    return blocks


def _rate(hardware: Hardware, device: str, precision: Precision) -> float:
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
