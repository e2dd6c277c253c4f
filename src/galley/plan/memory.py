"""How much memory a training needs, part by part, from the shape of the model."""

from __future__ import annotations

from dataclasses import dataclass

from galley.base import MIB
from galley.models.spec import ModelSpec
from galley.recipe.schema import OptimizerName, Precision, Tuning

RUNTIME_BYTES = {"cpu": 560 * MIB, "cuda": 1200 * MIB, "mps": 600 * MIB}
"""Libraries, thread pools and allocator; on cuda the context and its kernels."""
LOGITS_CHUNK_BYTES = 64 * MIB
"""Logits are computed in chunks of this size; a chunk, its gradient and its softmax exist at once."""
NF4_BYTES = 0.53
"""4 bits a weight and one scale a block of 64, itself quantised (Dettmers et al., 2305.14314, section 3)."""
_GENERAL_PATH, _FUSED = 1.6, 0.7
"""Activations of transformers' own modules (float32 norms, unfused products) and of those whose norms, products and
rotations are fused, against 8 hidden and 4 inner vectors a token and block."""
_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
MOMENT_BYTES: dict[OptimizerName, float] = {"adamw": 8, "adamw-8bit": 2, "adafactor": 0.1, "muon": 4, "sgd": 4}
"""Of the optimiser's moments of one weight that learns."""


@dataclass(frozen=True)
class Load:
    """What the memory depends on.

    Args:
        tuning, precision, optimizer, checkpointing, device: as in the plan.
        rank: of the adapter; ignored without one.
        micro_batch_tokens: tokens computed at once, at most.
        supervised_share: share of the tokens that are learned.
        fast_path: the hand-written step, which keeps two hidden vectors a block for the backward pass.
        fused: the general step of a Llama-shaped decoder on a processor.
    """

    tuning: Tuning
    precision: Precision
    optimizer: OptimizerName
    device: str
    micro_batch_tokens: int
    rank: int = 16
    checkpointing: str = "none"
    supervised_share: float = 1.0
    fast_path: bool = False
    fused: bool = False


def memory_parts(spec: ModelSpec, load: Load) -> dict[str, int]:
    """Bytes by part, in the order in which they are shown.

    Trained weights have a float32 master (the weight itself when the precision is fp32), a float32 gradient and the
    optimiser's moments. Activations follow Korthikanti et al., 2205.05198, adapted to gated blocks.
    """
    base = _BYTES[load.precision]
    trained = trained_parameters(spec, load.tuning, load.rank)
    adapters = 0 if load.tuning == "full" else trained
    masters = trained * 4 if load.tuning == "full" and base < 4 else 0
    passing_gradients = trained * base if load.tuning == "full" and base < 4 else 0
    return {
        "weights": _weight_bytes(spec, load.tuning, base) + adapters * 4,
        "gradients": trained * 4 + passing_gradients,
        "optimizer": int(masters + trained * MOMENT_BYTES[load.optimizer]),
        "activations": _activation_bytes(spec, load, base),
        "logits": _logits_bytes(spec, load),
        "runtime": RUNTIME_BYTES.get(load.device.partition(":")[0], RUNTIME_BYTES["cuda"]),
    }


def trained_parameters(spec: ModelSpec, tuning: Tuning, rank: int) -> int:
    """Parameters that learn: all, or those of adapters on every linear layer of the blocks."""
    if tuning == "full":
        return spec.num_parameters
    ends = sum(fan_in + fan_out for fan_in, fan_out in linear_shapes(spec))
    magnitudes = sum(fan_out for _, fan_out in linear_shapes(spec)) if tuning == "dora" else 0
    return spec.num_layers * (ends * rank + magnitudes)


def linear_shapes(spec: ModelSpec) -> list[tuple[int, int]]:
    """Inputs and outputs of the linear layers of one block (attention, then a gated or plain feed-forward net)."""
    width = spec.hidden_size
    head = spec.head_dim or (width // spec.num_heads if spec.num_heads else width)
    queries, keys = head * (spec.num_heads or 1), head * (spec.num_kv_heads or spec.num_heads or 1)
    inner = spec.intermediate_size or 4 * width
    attention = [(width, queries), (width, keys), (width, keys), (queries, width)]
    forward = [(width, inner), (inner, width)] if spec.kind == "encoder" else [(width, inner)] * 2 + [(inner, width)]
    return attention + forward * max(1, spec.num_experts)


def block_parameters(spec: ModelSpec) -> int:
    """Parameters of all blocks, without embeddings and output head."""
    tables = 1 if spec.tied_embeddings or spec.kind != "decoder" else 2
    return max(spec.num_parameters - tables * spec.vocab_size * spec.hidden_size, spec.num_parameters // 10)


def _weight_bytes(spec: ModelSpec, tuning: Tuning, base: int) -> int:
    if tuning != "qlora":
        return spec.num_parameters * base
    blocks = block_parameters(spec)
    return int(blocks * NF4_BYTES + (spec.num_parameters - blocks) * base)


def _activation_bytes(spec: ModelSpec, load: Load, base: int) -> int:
    """What the backward pass needs: about 8 hidden and 4 inner vectors a token and block, or one with recomputing.

    The hand-written step keeps two, and works on 20 hidden and 12 inner ones.
    """
    width, inner = spec.hidden_size, spec.intermediate_size or 4 * spec.hidden_size
    tokens = load.micro_batch_tokens
    if load.fast_path and load.checkpointing == "none":
        return tokens * base * (spec.num_layers * (2 * width + 4 * load.rank) + 20 * width + 12 * inner)
    block = int(tokens * base * (8 * width + 4 * inner) * (_FUSED if load.fused else _GENERAL_PATH))
    if load.checkpointing == "full":
        return spec.num_layers * tokens * base * width + block
    return spec.num_layers * block


def _logits_bytes(spec: ModelSpec, load: Load) -> int:
    if spec.kind != "decoder":
        return 0
    whole = int(load.micro_batch_tokens * load.supervised_share) * spec.vocab_size * 4
    return 3 * min(whole, LOGITS_CHUNK_BYTES)
