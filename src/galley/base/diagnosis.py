"""What this machine and installation can do: versions, missing packages and what they would enable, real speeds."""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Package:
    """An optional package.

    Args:
        name: its distribution.
        extra: the extra of galley-train that brings it.
        enables: what works with it.
        version: None when it is not installed.
    """

    name: str
    extra: str
    enables: str
    version: str | None


OPTIONAL = {
    "torch": ("train", "all training"),
    "transformers": ("train", "pretrained language models"),
    "peft": ("train", "LoRA and DoRA adapters"),
    "tokenizers": ("train", "text"),
    "safetensors": ("train", "saving and loading weights"),
    "gguf": ("train", "models in .gguf files"),
    "sentencepiece": ("train", "tokenizers of some older models"),
    "matplotlib": ("train", "a picture of the loss"),
    "charset-normalizer": ("data", "text files in unknown encodings"),
    "openpyxl": ("data", "XLSX tables"),
    "pyarrow": ("data", "Parquet tables"),
    "datasets": ("data", "hub datasets"),
    "reasoning-gym": ("data", "generated reasoning tasks"),
    "bitsandbytes": ("quantized", "QLoRA and the adamw-8bit optimiser"),
    "tensorboard": ("sinks", "metrics in TensorBoard"),
    "trackio": ("sinks", "metrics in trackio (W&B-compatible)"),
}
"""Distribution to the extra that brings it and what works with it."""


def packages() -> list[Package]:
    """All optional packages, installed or not."""
    return [Package(name, extra, enables, version_of(name)) for name, (extra, enables) in OPTIONAL.items()]


def version_of(distribution: str) -> str | None:
    """Its version, or None when it is not installed; nothing is imported."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, str]:
    """Versions and platform for a bug report; holds nothing about the person or their files."""
    always = ("galley-train", "numpy", "pydantic", "ruamel.yaml", "rich")
    versions = {name: version_of(name) for name in (*always, *OPTIONAL)}
    return {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "machine": platform.machine(),
        **{name: version or "not installed" for name, version in versions.items()},
    }


def python_is_supported() -> bool:
    """Whether this Python is one that Galley is tested with."""
    return sys.version_info >= (3, 11)


def matmul_speed(dtype: str, *, size: int = 1024, seconds: float = 0.3) -> float:
    """Measured speed of a matrix product on the processor, in FLOP/s.

    Args:
        dtype: `bfloat16` or `float32`.
        size: rows and columns of both matrices.
        seconds: about how long to measure.
    """
    import torch

    a = torch.ones(size, size, dtype=getattr(torch, dtype))
    best = 0.0
    stop = time.perf_counter() + seconds
    torch.mm(a, a)  # warms up threads and kernels
    while time.perf_counter() < stop:
        started = time.perf_counter()
        torch.mm(a, a)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best
