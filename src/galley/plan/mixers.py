"""State-space and convolution layers as arithmetic, from a transformers config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from galley.plan.architecture import Mixer

Config = Mapping[str, Any]


def mixer_of(config: Config, family: str, layers: int, hidden: int) -> Mixer | None:
    """What some layers of this family have in place of attention; None where all attend.

    Args:
        config: the content of config.json.
        family: its `model_type`.
        layers: of the model.
        hidden: width of the residual stream.
    """
    if family in ("mamba", "falcon_mamba"):
        return _mamba(config, layers, hidden)
    if family == "mamba2":
        return _mamba2(config, layers, hidden, hybrid=False)
    if family == "bamba":
        return _mamba2(config, layers - len(config.get("attn_layer_indices") or ()), hidden, hybrid=True)
    if family == "lfm2":
        return _convolution(config, layers, hidden)
    return None


def _mamba(config: Config, layers: int, hidden: int) -> Mixer:
    """Gu and Dao 2023 (2312.00752), figure 3."""
    inner = int(config.get("intermediate_size") or config.get("expand", 2) * hidden)
    state, kernel = int(config["state_size"]), int(config.get("conv_kernel", 4))
    rank = config.get("time_step_rank", "auto")
    rank = math.ceil(hidden / 16) if rank == "auto" else int(rank)
    weights = 2 * hidden * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    weights += inner + inner * state + inner + inner * kernel  # bias of the step, A, D, convolution
    weights += inner if config.get("use_conv_bias", True) else 0
    weights += 2 * inner + hidden if config.get("use_bias", False) else 0
    return Mixer(layers=layers, parameters=weights, state=inner * (state + kernel), scan_flops=6.0 * inner * state)


def _mamba2(config: Config, layers: int, hidden: int, *, hybrid: bool) -> Mixer:
    """Dao and Gu 2024 (2405.21060), section 7; a model that mixes both kinds names its sizes with a prefix."""
    heads = int(config["mamba_n_heads" if hybrid else "num_heads"])
    width = int(config["mamba_d_head" if hybrid else "head_dim"])
    groups = int(config.get("mamba_n_groups" if hybrid else "n_groups", 1))
    state = int(config["mamba_d_state" if hybrid else "state_size"])
    kernel = int(config.get("mamba_d_conv" if hybrid else "conv_kernel", 4))
    inner = heads * width
    convolved = inner + 2 * groups * state
    weights = hidden * (inner + convolved + heads) + inner * hidden
    weights += 3 * heads + inner + convolved * kernel  # bias of the step, A and D of each head; norm; convolution
    weights += convolved if config.get("mamba_conv_bias" if hybrid else "use_conv_bias", True) else 0
    if config.get("mamba_proj_bias" if hybrid else "use_bias", False):
        weights += inner + convolved + heads + hidden
    kept = inner * state + convolved * kernel
    return Mixer(layers=layers, parameters=weights, state=kept, scan_flops=6.0 * inner * state)


def _convolution(config: Config, layers: int, hidden: int) -> Mixer:
    """A gated convolution over the last tokens (LFM2)."""
    kinds = config.get("layer_types") or ["conv"] * layers
    kernel = int(config.get("conv_L_cache", 3))
    weights = 3 * hidden * hidden + hidden * hidden + hidden * kernel
    weights += 5 * hidden if config.get("conv_bias", False) else 0
    return Mixer(
        layers=sum(kind == "conv" for kind in kinds),
        parameters=weights,
        state=hidden * kernel,
        scan_flops=2.0 * hidden * kernel,
    )
